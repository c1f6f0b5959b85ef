# Cloze in an image: docker build --build-arg JAX=tpu -t cloze:tpu .    (JAX, an extra of setup.cfg: tpu, cuda13, cuda12 or cpu)
# Its arguments are those of `python -m pretrain`. Written for docs/pods.md; not built by any test.
FROM python:3.11-slim

ARG JAX=tpu
WORKDIR /cloze
# What changes seldom comes first: with the code changed the libraries need not be installed again.
COPY setup.cfg pyproject.toml README.md ./
COPY distribution distribution
COPY models/__init__.py models/
COPY data/__init__.py data/
COPY pretrain/__init__.py pretrain/
RUN pip install --no-cache-dir -e ".[$JAX]"
COPY models models
COPY data data
COPY pretrain pretrain
COPY configs configs
ENV PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1
# In this form the program is process 1 and gets SIGTERM itself: it saves and leaves.
ENTRYPOINT ["python", "-m", "pretrain"]
CMD ["doctor"]
