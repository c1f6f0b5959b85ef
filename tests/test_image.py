"""The Dockerfile, read: what it copies exists and reaches the builder, its extras exist, and the
workflow builds each of its targets.
"""

import configparser
import fnmatch
import re

import pytest

PROGRAM = 'ENTRYPOINT ["python", "-m", "pretrain"]'


@pytest.fixture
def stages(root):
    """Return {name of a stage: [(instruction, arguments)]} of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (root / "Dockerfile").read_text(), flags=re.MULTILINE)
    found, stage = {}, "head"
    for line in filter(None, text.replace("\\\n", " ").splitlines()):
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            stage = arguments.rpartition(" AS ")[2]
        found.setdefault(stage, []).append((instruction, arguments))
    return found


def list_targets(stages):
    """Return the stages that can be run."""
    return {name for name, lines in stages.items() if ("CMD", '["doctor"]') in lines}


def test_the_image_copies_existing_files(stages, root):
    ignored = (root / ".dockerignore").read_text().splitlines()
    admitted = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert "*" in ignored  # so that what is not admitted is left out
    copied = [
        name
        for lines in stages.values()
        for instruction, arguments in lines
        if instruction == "COPY" and "--from" not in arguments
        for name in arguments.split()[:-1]
    ]
    assert {"models", "data", "pretrain", "configs"} <= set(copied)
    for name in copied:
        assert (root / name).exists(), name
        assert any(fnmatch.fnmatch(name.split("/")[0], pattern) for pattern in admitted), name


def test_each_target_installs_its_extra_and_gets_signals(stages, root):
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg")
    assert list_targets(stages) == {"cpu", "cuda", "tpu"}
    for name in list_targets(stages):
        lines = [f"{instruction} {arguments}" for instruction, arguments in stages[name]]
        install = f'RUN pip install -c constraints.txt -e ".[{name},tfdata]"'
        assert install in lines
        assert name in setup["options.extras_require"]
        assert PROGRAM in lines  # without a shell, which would not pass SIGTERM on
        # The code comes last: a change of it does not install the libraries again.
        assert lines.index("COPY --from=code /cloze /cloze") > lines.index(install)
    for name in ("cpu", "cuda"):
        assert ("USER", "1000") in stages[name]


def test_the_base_is_pinned(stages):
    ((_, argument),) = stages["head"]
    assert re.fullmatch(r"BASE=python:3\.11\.\d+-slim-\w+", argument)


def test_the_workflow_builds_each_target(stages, root):
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((root / ".github/workflows/image.yml").read_text())
    job = workflow["jobs"]["build"]
    assert set(job["strategy"]["matrix"]["target"]) == list_targets(stages)
    scripts = "\n".join(step.get("run", "") for step in job["steps"])
    assert "docker build --target ${{ matrix.target }}" in scripts
    for command in ("cloze prepare builtin", "cloze train bert_tiny"):
        assert command in scripts
    # GitHub's own triggers; "on" is a truth value in YAML 1.1.
    assert {"push", "pull_request", "schedule"} == workflow[True].keys()
    libraries = {"Dockerfile", "setup.cfg", "pyproject.toml", "constraints.txt", "distribution/**"}
    for event in ("push", "pull_request"):
        assert libraries <= set(workflow[True][event]["paths"])
