"""The manifests, read by the tools that they are for, and by a Slurm that runs on this machine.

The tools are no dependency of the project. CLOZE_TOOLS_PYTHON names a Python that has them: `pip
install skypilot xpk kubernetes jsonschema` (.github/workflows/clusters.yml).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from pretrain.__main__ import main
from pretrain.pod.tpu_types import GENERATIONS, parse_type
from tests.pretrain.pod.manifest_tools import TOOLS

SCRIPT = pathlib.Path(__file__).parent / "manifest_tools.py"
PYTHON = os.environ.get("CLOZE_TOOLS_PYTHON", sys.executable)
TRAIN = ["train", "bert_large", "--workdir", "gs://bucket/a b", "data.store=gs://bucket/it's $(x)"]
IMAGE = ["--image", "us-east5-docker.pkg.dev/p/cloze/cloze:tpu"]
TPU = ["--type", "v5p-32", "--spot"]
ZONE = ["--zone", "us-east5-a"]
CASES = {
    "jobset": ["jobset", *TPU, *IMAGE, "--slices", "2"],
    "jobset-small": ["jobset", "--type", "v5litepod-1", *IMAGE],
    "xpk": ["xpk", *TPU, *IMAGE, *ZONE, "--cluster", "c", "--slices", "2"],
    "xpk-topology": ["xpk", *IMAGE, *ZONE, *("--cluster", "c", "--type", "v5p-384")]
    + ["--topology", "4x4x12"],
    "skypilot": ["skypilot", *TPU, *ZONE],
    "skypilot-gpu": ["skypilot", "--type", "H100:8", "--nodes", "2", *ZONE],
}


def run_tool(form, *arguments):
    """Run manifest_tools.py; skip where the tool is not installed."""
    probe = [PYTHON, "-c", f"import {TOOLS[form]}"]
    if subprocess.run(probe, capture_output=True, cwd="/").returncode:
        pytest.skip(f"{PYTHON} cannot import {TOOLS[form]}; CLOZE_TOOLS_PYTHON names one that can")
    words = [PYTHON, SCRIPT, *arguments]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, cwd="/", env=env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_tool_accepts_the_manifest(case, tmp_path):
    form, *flags = CASES[case]
    path = tmp_path / "manifest"
    words = ["manifest", "--for", form, "--name", "bert", *flags, "--output", str(path)]
    assert main(["pod", *words, "--", *TRAIN]) == 0
    run_tool(form, form, path)


@pytest.mark.slow
def test_the_types_are_those_of_xpk():
    compared = 0
    for name, device_type, *shape in json.loads(run_tool("xpk", "slices")):
        generation, _, size = name.rpartition("-")
        row = GENERATIONS.get(generation)
        # XPK lists shapes beyond the largest slice of v4 and v5p that Google's pages name.
        chips = shape[1] * shape[2]
        if not row or chips > row.max_chips or name in ("v4-8192",):
            continue
        topology = size if "x" in size else None
        if not topology and chips & (chips - 1):
            continue  # there are several topologies: --topology is required
        found = parse_type(device_type if topology else name, topology)
        mine = [found.topology, found.num_hosts, found.chips_per_host, row.gke_accelerator]
        assert mine == shape, name
        compared += 1
    assert compared > 1000


@pytest.mark.slow
def test_slurm_accepts_the_script(tmp_path):
    ping = ["scontrol", "ping"]
    if not shutil.which("sbatch") or subprocess.run(ping, capture_output=True).returncode:
        pytest.skip("no Slurm runs on this machine (packages slurm-wlm and munge)")
    path = tmp_path / "job.sbatch"
    words = ["manifest", "--for", "slurm", "--name", "bert", "--gpus", "0", "--output", str(path)]
    assert main(["pod", *words, "--", *TRAIN]) == 0
    done = subprocess.run(["sbatch", "--test-only", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
