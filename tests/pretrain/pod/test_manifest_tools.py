"""The manifests, read by the tools that they are for, and by a Slurm that runs on this machine.

The tools are no dependency of the project. CLOZE_TOOLS_PYTHON names a Python that has them: `pip
install skypilot xpk kubernetes jsonschema` (.github/workflows/clusters.yml).
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from pretrain.__main__ import main
from pretrain.pod.tpu_types import GENERATIONS, parse_type
from tests.pretrain.pod.manifest_tools import TOOLS
from tests.pretrain.pod.recorder import (
    NOTE,
    TRAIN,
    expand_references,
    run_bash,
    write_recorders,
)

SCRIPT = pathlib.Path(__file__).parent / "manifest_tools.py"
PYTHON = os.environ.get("CLOZE_TOOLS_PYTHON", sys.executable)
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


@pytest.mark.held_by(2)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_tool_accepts_the_manifest(case, tmp_path):
    form, *flags = CASES[case]
    path = tmp_path / "manifest"
    words = ["manifest", "--for", form, "--name", "bert", *flags, "--output", str(path)]
    assert main(["pod", *words, "--env", f"NOTE={NOTE}", "--", *TRAIN]) == 0
    printed = run_tool(form, form, path)
    if form == "xpk":
        script = expand_references(json.loads(printed), {})
        write_recorders(tmp_path / "bin")
        bin_path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        status, (words, env) = run_bash(script, tmp_path, PATH=bin_path, STATUS="75")
        assert (status, words, env["NOTE"]) == (75, TRAIN, NOTE)


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


@pytest.fixture
def slurm():
    """Skip where no Slurm runs on this machine."""
    ping = ["scontrol", "ping"]
    if not shutil.which("sbatch") or subprocess.run(ping, capture_output=True).returncode:
        pytest.skip("no Slurm runs on this machine (packages slurm-wlm and munge)")


def run_slurm(*words):
    """Run a program of Slurm and return what it prints."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def wait_for(read, text, seconds=120):
    """Wait until a text is in what a function returns, and return that."""
    end = time.monotonic() + seconds
    while text not in (found := read()):
        if time.monotonic() > end:
            raise TimeoutError(f"{text!r} is not in: {found[-3000:]}")
        time.sleep(0.5)
    return found


def find_task(rank):
    """Return the process of a task of Slurm by its rank."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if b"SLURM_PROCID=%d" % rank in environ and b"train" in words and b"-m" in words:
            return int(folder.name)
    raise LookupError(f"no task {rank}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_of_slurm_resumes_after_a_kill_and_is_saved_by_scancel(slurm, tmp_path, root):
    store = tmp_path / "store"
    (tmp_path / "a.txt").write_text((root / "docs/notebook/2026-11.md").read_text())
    words = ["--document", "block", "--vocab-size", "400", "--held-out", "0.1"]
    assert main(["prepare", str(tmp_path / "a.txt"), "--output", str(store), *words]) == 0
    script, log = tmp_path / "job.sbatch", tmp_path / "log"
    program = f"{sys.executable} -m pretrain"
    words = ["manifest", "--for", "slurm", "--name", "bert", "--gpus", "0", "--tasks", "2"]
    words += ["--program", program, "--env", f"PYTHONPATH={root}", "--output", str(script)]
    words += ["--env", "XLA_FLAGS="]  # the tests' own, which make eight devices, would pass on
    words += [f"--create-flag=--output={log}", f"--create-flag=--chdir={tmp_path}"]
    sizes = ["model.vocab=400", "model.width=32", "model.mlp=64", "mesh.data=2"]
    often = ["train.steps=100000", "checkpoint.every=20", "evaluate.every=20", "data.batch_size=8"]
    verb = ["train", "bert_tiny", "--workdir", "runs/a b", f"data.store={store}", *sizes, *often]
    assert main(["pod", *words, "--", *verb]) == 0
    job = run_slurm("sbatch", "--parsable", script).strip()

    def read_log():
        return log.read_text() if log.exists() else ""

    try:
        wait_for(read_log, "step 40, held out")
        os.kill(find_task(1), signal.SIGKILL)
        state = wait_for(lambda: run_slurm("scontrol", "show", "job", job), "Restarts=1 ")
        if "JobState=PENDING" in state:  # Slurm would wait two minutes
            run_slurm("scontrol", "update", f"JobId={job}", "StartTime=now")
        log_text = wait_for(read_log, "continuing after step ", seconds=200)
        wait_for(lambda: read_log()[len(log_text) :], ", held out")
    finally:
        run_slurm("scancel", job)
    end = wait_for(lambda: read_log()[len(log_text) :], "Exited with exit code 143")
    assert "saved step" in end
