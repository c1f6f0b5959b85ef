"""The recipes of docs/pods.md and the Dockerfile: they parse, their flags exist, and they agree
with the launcher's table.
"""

import argparse
import re
import shlex
import subprocess

import pytest

from pretrain.cli.verbs import import_verb
from pretrain.config import load
from pretrain.pod.environment import build_environment

pytestmark = pytest.mark.slow


@pytest.fixture
def blocks(root):
    """Return {language: [text of a block]} of the page."""
    found = {}
    for language, text in re.findall(
        r"^```(\w+)\n(.*?)^```", (root / "docs" / "pods.md").read_text(), re.MULTILINE | re.DOTALL
    ):
        found.setdefault(language, []).append(text)
    return found


def check_command(words):
    verb, *rest = words
    parser = argparse.ArgumentParser(exit_on_error=False)
    import_verb(verb).add_arguments(parser)
    args = parser.parse_intermixed_args(rest)
    load(args.config, args.overrides)


def test_the_manifests_run_what_the_launcher_would(blocks):
    yaml = pytest.importorskip("yaml")
    jobset, sky = (yaml.safe_load(text) for text in blocks["yaml"])
    table = build_environment("gs://bucket/bert")
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["parallelism"] == job["completions"] and job["backoffLimit"] == 0
    (container,) = job["template"]["spec"]["containers"]
    check_command(container["args"])
    for environment in ({row["name"]: row["value"] for row in container["env"]}, sky["envs"]):
        assert environment.items() - {("CLOZE_CLUSTER", "gke")} <= table.items()
        assert table.keys() - environment.keys() <= {
            "PYTHONFAULTHANDLER",
            "PYTHONUNBUFFERED",
        }  # optional tools; the image has them
    check_command(shlex.split(sky["run"].partition("-m pretrain ")[2]))


def test_the_batch_script_is_a_script(blocks):
    (script,) = blocks["bash"]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    check_command(shlex.split(re.search(r"^srun .*-m pretrain (.*) \|\|", script, re.MULTILINE)[1]))


def test_the_image_copies_existing_files(root):
    lines = (root / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert {"models", "data", "pretrain", "configs"} <= set(copied)
    assert all((root / name).exists() for name in copied)
