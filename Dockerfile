# Cloze in an image, one target per kind of machine (docs/image.md): docker build --target tpu -t cloze:tpu .
# The arguments of a container are those of `python -m pretrain`.
ARG BASE=python:3.11.13-slim-bookworm

FROM ${BASE} AS base
ENV PATH=/opt/cloze/bin:$PATH PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/cloze && useradd --create-home --uid 1000 cloze
WORKDIR /cloze
# What the libraries depend on, without the code: a change of the code does not install them again.
COPY setup.cfg pyproject.toml README.md constraints.txt ./
COPY distribution distribution
COPY models/__init__.py models/
COPY data/__init__.py data/
COPY pretrain/__init__.py pretrain/
COPY configs/__init__.py configs/

# The code as one layer, the last one of each target.
FROM scratch AS code
COPY models /cloze/models
COPY data /cloze/data
COPY pretrain /cloze/pretrain
COPY configs /cloze/configs

FROM base AS cpu
# malloc keeps the memory of a step, as with launch.sh; accelerators have their own.
ENV GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000:glibc.malloc.top_pad=268435456:glibc.malloc.arena_max=1
RUN pip install -c constraints.txt -e ".[cpu,tfdata]"
COPY --from=code /cloze /cloze
USER 1000
# In this form the program is process 1 and gets SIGTERM itself: it saves a checkpoint and exits.
ENTRYPOINT ["python", "-m", "pretrain"]
CMD ["doctor"]

FROM base AS cuda
RUN pip install -c constraints.txt -e ".[cuda,tfdata]"
COPY --from=code /cloze /cloze
USER 1000
ENTRYPOINT ["python", "-m", "pretrain"]
CMD ["doctor"]

# The user is root: the device files of the chips belong to root.
FROM base AS tpu
RUN pip install -c constraints.txt -e ".[tpu,tfdata]"
COPY --from=code /cloze /cloze
ENTRYPOINT ["python", "-m", "pretrain"]
CMD ["doctor"]
