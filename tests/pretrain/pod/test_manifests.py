"""`pod manifest`: what each form starts is what was asked for, whatever its characters; bad requests
are refused.
"""

import errno
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.__main__ import main
from pretrain.pod.environment import build_environment
from pretrain.pod.manifests.shell_text import join_words
from pretrain.pod.manifests.yaml_text import format_yaml
from pretrain.pod.tpu_types import parse_type
from pretrain.processes.cluster_detection import detect_cluster
from tests.pretrain.pod.recorder import (
    HOSTILE,
    NOTE,
    TRAIN,
    expand_references,
    run_bash,
    write_recorders,
)

yaml = pytest.importorskip("yaml")

IMAGE = ["--image", "us-east5-docker.pkg.dev/p/cloze/cloze:tpu"]
TYPE = ["--type", "v5p-32"]
ZONE = ["--zone", "us-east5-a"]
FORM_FLAGS = {
    "jobset": [*TYPE, *IMAGE],
    "xpk": [*TYPE, *IMAGE, *ZONE, "--cluster", "c"],
    "slurm": [],
    "skypilot": [*TYPE, *ZONE],
}


def make_manifest(capsys, form, *flags, verb=TRAIN):
    """Return what `pod manifest` prints."""
    words = ["manifest", "--for", form, "--name", "bert", *FORM_FLAGS[form], *flags, "--", *verb]
    assert main(["pod", *words]) == 0
    return capsys.readouterr().out


@pytest.fixture
def bin_folder(tmp_path, monkeypatch):
    """Return a folder first on PATH with recorders named cloze, srun and scontrol."""
    folder = tmp_path / "bin"
    write_recorders(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


# ---- the writer ----------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = st.sampled_from(
    ["no", "1e3", "~", "- a", "a: b", "a #b", "a\nb\n", "a\n b\n", " a\nb\n", "\n", " ", "=", "<<"]
)
NESTED = st.recursive(
    TEXTS | WORDS | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(TEXTS | WORDS, NESTED, min_size=1, max_size=3))
def test_yaml_reads_what_was_written(value):
    assert yaml.safe_load(format_yaml(value) + "\n") == value


def test_bash_reads_what_was_quoted():
    words = [chr(code) + "7'\\" for code in range(1, 0x180)] + ["", HOSTILE, NOTE, "\u2028-n"]
    for one_line in (False, True):
        command = "printf '%s\\0' " + join_words(words, one_line)
        assert not one_line or command.isprintable()
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
        assert done.stdout.decode().split("\0")[:-1] == words


# ---- JobSet --------------------------------------------------------------------------

# Fields of the JobSet's own levels, by api/jobset/v1alpha2/jobset_types.go of kubernetes-sigs/jobset
# (read 2026-11-26). Those of the Job below are checked by test_manifest_tools.py.
JOBSET_FIELDS = {
    "spec": {"failurePolicy", "replicatedJobs", "network", "successPolicy", "suspend"},
    "failurePolicy": {"maxRestarts", "restartStrategy", "rules"},
    "replicatedJob": {"name", "replicas", "template", "groupName", "dependsOn"},
}


def test_a_jobset_has_the_fields_of_its_api(capsys):
    jobset = yaml.safe_load(make_manifest(capsys, "jobset", "--slices", "2", "--spot"))
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    spec = jobset["spec"]
    policy, (slices,) = spec["failurePolicy"], spec["replicatedJobs"]
    assert spec.keys() <= JOBSET_FIELDS["spec"]
    assert policy.keys() <= JOBSET_FIELDS["failurePolicy"]
    assert policy["restartStrategy"] in ("Recreate", "BlockingRecreate", "InPlaceRestart")
    assert slices.keys() <= JOBSET_FIELDS["replicatedJob"] and slices["replicas"] == 2
    job = slices["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 4 and job["backoffLimit"] == 0
    pod = job["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x4",
        "cloud.google.com/gke-spot": "true",
    }
    assert pod["restartPolicy"] == "Never"  # a container alone would not find its neighbours
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}


def test_each_exit_status_restarts_up_to_a_limit(capsys):
    spec = yaml.safe_load(make_manifest(capsys, "jobset", "--max-restarts", "7"))["spec"]
    assert spec["failurePolicy"]["maxRestarts"] == 7
    assert "rules" not in spec["failurePolicy"]  # JobSet's default is to restart
    assert "podFailurePolicy" not in spec["replicatedJobs"][0]["template"]["spec"]
    _, flags = read_xpk_command(make_manifest(capsys, "xpk", "--max-restarts", "7"))
    assert flags["max-restarts"] == "7"
    own = {int(status) for status in flags["restart-on-exit-codes"].split(",")}
    assert own | {42, *range(127, 256)} >= {1, 2, 3, 75, 130, 134, 137, 139, 143}
    task = yaml.safe_load(make_manifest(capsys, "skypilot", "--max-restarts", "7"))
    recovery = task["resources"]["job_recovery"]
    assert recovery["max_restarts_on_errors"] == 7
    assert not {1, 2, 3} & set(recovery["recover_on_exit_codes"])  # those have no limit


def test_a_container_gets_the_words_and_joins_its_neighbours(capsys):
    flags = ("--slices", "2", "--env", f"NOTE={NOTE}", "--grace", "300")
    jobset = yaml.safe_load(make_manifest(capsys, "jobset", *flags))
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 300
    (container,) = pod["containers"]
    env = {row["name"]: row["value"] for row in container["env"]}
    assert [expand_references(word, env | {"HOME": "/"}) for word in container["args"]] == TRAIN
    seen = {name: expand_references(text, env) for name, text in env.items()}
    assert seen == build_environment("gs://bucket/bert", ["CLOZE_CLUSTER=gke", f"NOTE={NOTE}"])
    # What GKE adds on host 3 of slice 1.
    given = {"TPU_WORKER_HOSTNAMES": "a,b,c,d", "TPU_WORKER_ID": "3", "MEGASCALE_SLICE_ID": "1"}
    given |= {"MEGASCALE_NUM_SLICES": "2", "MEGASCALE_COORDINATOR_ADDRESS": "bert-slice-0-0.bert"}
    cluster = detect_cluster(seen | given)
    assert (cluster.num_processes, cluster.process_index) == (8, 7)


def test_one_host_looks_for_no_neighbours(capsys):
    jobset = make_manifest(capsys, "jobset", "--type", "v5p-8")
    assert {"name": "CLOZE_CLUSTER", "value": "none"} in yaml.safe_load(jobset)["spec"][
        "replicatedJobs"
    ][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]


# ---- XPK -----------------------------------------------------------------------------


def read_xpk_command(text):
    """Return the value of --command as the container's shell gets it."""
    words = shlex.split(text.replace("\\\n", " "))
    assert words[:3] == ["xpk", "workload", "create"]
    flags = dict(word.removeprefix("--").split("=", 1) for word in words[3:])
    assert "\n" not in flags["command"]
    return expand_references(flags["command"], {"HOME": "/"}), flags


def test_xpk_runs_the_words(capsys, bin_folder, tmp_path):
    note = "a\nb\n"
    more = ("--slices", "2", "--env", f"NOTE={note}")
    command, flags = read_xpk_command(make_manifest(capsys, "xpk", *more))
    assert (flags["tpu-type"], flags["num-slices"]) == ("v5p-32", "2")
    _, (words, env) = run_bash(f"({command}) & wait $!", tmp_path)
    assert words == TRAIN and env["CLOZE_CLUSTER"] == "gke"
    table = build_environment("gs://bucket/bert", ["CLOZE_CLUSTER=gke", f"NOTE={note}"])
    assert env.items() >= table.items()


def test_the_run_itself_gets_the_signal_from_xpk(capsys, bin_folder, tmp_path):
    """XPK sends SIGTERM to the subshell in which it runs the command."""
    command, _ = read_xpk_command(make_manifest(capsys, "xpk"))
    assert command.startswith("exec ")  # some shells replace themselves without it
    (bin_folder / "cloze").write_text(
        f"#!{sys.executable}\nimport signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "open('ready', 'w').close()\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        ["bash", "-c", f"({command}) & PID=$!; echo $PID; wait $PID"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    pid = int(process.stdout.readline())
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    os.kill(pid, signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    process.stdout.close()


# ---- Slurm ---------------------------------------------------------------------------


def test_srun_gets_the_words(capsys, bin_folder, tmp_path):
    verb = ["train", "bert_tiny", "--workdir", "runs/a b", f"data.store={HOSTILE}\n#SBATCH --x"]
    flags = ("--env", f"NOTE={NOTE}", "--create-flag=--cpus-per-task=16", "--create-flag=-c8")
    texts = ("--create-flag=--comment=a b", '--create-flag=--x="a b"', "--create-flag=-p gpu")
    script = make_manifest(capsys, "slurm", *flags, *texts, verb=verb)
    _, (words, env) = run_bash(script, tmp_path, SLURM_JOB_ID="1")
    assert words == ["--cpus-per-task=16", "-c8", ".venv/bin/cloze", *verb]
    assert env["NOTE"] == NOTE and env["CLOZE_CLUSTER"] == "slurm"
    assert env["NO_GCE_CHECK"] == "true" and env["JAX_COMPILATION_CACHE_DIR"] == "runs/a b/compiled"
    head = script.partition("\nexport")[0].splitlines()
    directives = [shlex.split(line.removeprefix("#SBATCH ")) for line in head[1:]]
    assert head[0] == "#!/usr/bin/env bash" and {len(words) for words in directives[:-1]} == {1}
    assert all(line.startswith("#SBATCH -") for line in head[1:])
    assert directives[-5:-2] == [["--cpus-per-task=16"], ["-c8"], ["--comment=a b"]]
    assert directives[-2:] == [["--x=a b"], ["-p", "gpu"]]
    assert "#SBATCH --signal=TERM@120" in head and "#SBATCH --gpus-per-node=8" in head


@pytest.mark.parametrize(
    ("status", "count", "is_requeued"),
    [
        *((0, 0, False), (1, 0, False), (3, 0, False), (2, 0, True), (2, 20, False)),
        *((75, 0, True), (137, 19, True), (137, 20, False), (143, 500, True)),
    ],
)
def test_a_job_requeues_itself_where_the_run_resumes(
    status, count, is_requeued, capsys, bin_folder, tmp_path
):
    script = make_manifest(capsys, "slurm", "--gpus", "0")
    assert "gpus" not in script and "JAX_PLATFORMS=cpu" in script
    env = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(count), "STATUS": str(status)}
    left, (words, _) = run_bash(script, tmp_path, **env)
    assert left == status
    assert (words == ["requeue", "7"]) == is_requeued


# ---- a sweep -------------------------------------------------------------------------

SWEEP = ["sweep", "bert_tiny", "--folder", "gs://bucket/s", "data.store=gs://bucket/a $(b) 'c"]
RATES = "optimizer.learning_rate=1e-4,3e-4"


def list_member(rate):
    """Return the command of a member of SWEEP with RATES."""
    workdir = f"gs://bucket/s/learning_rate={rate}"
    return [
        *("train", "bert_tiny", "--workdir", workdir, SWEEP[-1]),
        f"optimizer.learning_rate={rate}",
    ]


def test_each_task_of_an_array_trains_its_member(capsys, bin_folder, tmp_path):
    script = make_manifest(capsys, "slurm", verb=[*SWEEP, RATES])
    assert "#SBATCH --array=0-1" in script.splitlines()
    for task, rate in enumerate(("1e-4", "3e-4")):
        _, (words, env) = run_bash(
            script, tmp_path, SLURM_JOB_ID="7", SLURM_ARRAY_TASK_ID=str(task)
        )
        assert words == [".venv/bin/cloze", *list_member(rate)]
        assert env["JAX_COMPILATION_CACHE_DIR"] == "gs://bucket/s/compiled"


def test_a_manifest_has_a_jobset_for_each_member(capsys):
    text = make_manifest(capsys, "jobset", verb=[*SWEEP, RATES, "--random", "2"])
    jobsets = list(yaml.safe_load_all(text))
    assert [jobset["metadata"]["name"] for jobset in jobsets] == ["bert-0", "bert-1"]
    for jobset, rate in zip(jobsets, ("1e-4", "3e-4")):
        job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
        (container,) = job["template"]["spec"]["containers"]
        assert [expand_references(word, {}) for word in container["args"]] == list_member(rate)


@pytest.mark.parametrize(
    ("form", "words", "message"),
    [
        ("skypilot", [RATES], "starts one run: a sweep needs --for jobset or slurm"),
        ("slurm", [], "needs a field with several values"),
        ("slurm", [RATES, "--export", "best"], "--export: once all members have finished"),
        ("slurm", [RATES.replace("rate", "rat")], "did you mean 'learning_rate'"),
        ("jobset", [RATES, "--folder", "runs/s"], "must be gs://BUCKET/FOLDER"),
    ],
)
def test_a_wrong_sweep_has_no_manifest(form, words, message, capsys):
    words = ["manifest", "--for", form, "--name", "bert", *FORM_FLAGS[form], "--", *SWEEP, *words]
    assert main(["pod", *words]) == 2
    assert message in capsys.readouterr().err


# ---- SkyPilot ------------------------------------------------------------------------


def test_skypilot_runs_the_words(capsys, tmp_path, bin_folder):
    task = yaml.safe_load(make_manifest(capsys, "skypilot", "--spot", "--program", "cloze"))
    resources = task["resources"]
    assert resources["accelerators"] == "tpu-v5p-32" and resources["use_spot"] is True
    assert resources["infra"] == "gcp/us-east5/us-east5-a"
    assert task["envs"] == build_environment("gs://bucket/bert")
    _, (words, _) = run_bash(task["run"], tmp_path)
    assert words == TRAIN
    subprocess.run(["bash", "-n"], input=task["setup"], text=True, check=True)


def test_skypilot_joins_nodes_with_gpus(capsys, tmp_path, bin_folder):
    flags = ("--type", "H100:8", "--nodes", "2", "--program", "cloze")
    task = yaml.safe_load(make_manifest(capsys, "skypilot", *flags))
    assert task["num_nodes"] == 2 and task["envs"]["JAX_PLATFORMS"] == "cuda,cpu"
    nodes = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2"}
    _, (words, env) = run_bash(task["run"], tmp_path, SKYPILOT_NODE_RANK="1", **nodes)
    assert words[: len(TRAIN)] == TRAIN
    flags = dict(zip(words[len(TRAIN) :: 2], words[len(TRAIN) + 1 :: 2]))
    processes = (flags["--coordinator"], int(flags["--processes"]), int(flags["--process"]))
    cluster = detect_cluster(env | task["envs"], processes)
    assert str(cluster.coordinator).startswith("10.0.0.1:") and cluster.process_index == 1


# ---- types and bad requests ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "topology", "hosts", "chips"),
    [
        *(("v4-8", "2x2x1", 1, 4), ("v4-32", "2x2x4", 4, 4), ("v4-512", "4x8x8", 64, 4)),
        *(("v5p-16", "2x2x2", 2, 4), ("v5p-128", "4x4x4", 16, 4), ("v5litepod-1", "1x1", 1, 1)),
        *(("v5litepod-16", "4x4", 4, 4), ("v6e-32", "4x8", 8, 4), ("v6e-256", "16x16", 64, 4)),
    ],
)
def test_a_type_has_a_topology_and_hosts(name, topology, hosts, chips):
    found = parse_type(name)
    assert (found.topology, found.num_hosts, found.chips_per_host) == (topology, hosts, chips)


@pytest.mark.parametrize(
    ("form", "flags", "message"),
    [
        ("jobset", ["--type", "v9-8"], "--type v9-8: no such accelerator type; known types are v2-N"),
        ("jobset", ["--type", "v5p-9"], "--type v5p-9: the number counts TensorCores, two a chip"),
        ("jobset", ["--type", "v6e-512"], "one chip or a multiple of 4 chips, 256 at most"),
        ("jobset", ["--type", "v3-32"], "no manifest is known for v3 on GKE"),
        ("jobset", ["--type", "v4-384"], "192 chips have several topologies; give yours, such as"),
        ("jobset", ["--topology", "4x4"], "--topology 4x4: v5p-32 has 16 chips, along 3 sides"),
        ("jobset", ["--name", "a" * 52], "and a name has at most 63 characters"),
        ("jobset", ["--name", "a b"], "--name 'a b'"),
        ("jobset", ["--name", "a\n"], "--name 'a\\n'"),
        ("jobset", ["--image", "a b"], "--image 'a b' is not the name of an image"),
        ("jobset", ["--image", ""], "needs --image for this form, e.g. us-east5-docker"),
        ("jobset", ["--cluster", "c"], "pod manifest --for jobset does not take --cluster"),
        ("jobset", ["--runtime", "r"], "pod manifest --for jobset does not take --runtime"),
        ("xpk", ["--dry-run", "--wait"], "pod manifest --for xpk does not take --dry-run, --wait"),
        ("slurm", ["--connect-flag=-v", "--poll", "9"], "does not take --connect-flag, --poll"),
        ("skypilot", ["--tries", "3", "--yes"], "does not take --tries, --yes"),
        ("skypilot", ["--account", "a"], "pod manifest --for skypilot does not take --account"),
        ("jobset", ["--env", "A B=1"], "--env 'A B'=...: expected NAME=VALUE"),
        ("slurm", ["--env", "WANDB_API_KEY=hunter2"],
         "--env WANDB_API_KEY=...: a manifest is a file that others read, and this looks like"),
        ("jobset", ["--env", "NOTE=\udcff"], "is not text: it has bytes that are not UTF-8"),
        ("jobset", ["--grace", "0"], "--grace 0: expected at least 1"),
        ("xpk", ["--name", "a" * 41], "XPK takes at most 40 characters"),
        ("xpk", ["--cluster", ""], "needs --cluster for this form"),
        ("slurm", ["--time", "tomorrow"], "--time 'tomorrow': expected HOURS:MINUTES:SECONDS"),
        ("slurm", ["--create-flag=partition=a"], "--create-flag 'partition=a': expected a flag"),
        ("slurm", ["--create-flag=--a\nid"], "expected a flag, in one line"),
        ("slurm", ["--program", ""], "--program: give the words that precede the verb"),
        ("skypilot", ["--zone", "foo"], "--zone foo: expected a zone of Google Cloud"),
        ("slurm", ["--type", "v4-8"], "pod manifest --for slurm does not take --type"),
        ("slurm", ["--spot"], "pod manifest --for slurm does not take --spot"),
        ("slurm", ["--nodes", "0"], "--nodes 0: expected at least 1"),
        ("skypilot", ["--type", "tpu7x-8"], "requests one slice of v2 to v6e"),
        ("skypilot", ["--nodes", "2"], "requests one slice of v2 to v6e"),
        ("skypilot", ["--zone", ""], "needs --zone for this form"),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused(form, flags, message, capsys):
    words = ["manifest", "--for", form, "--name", "bert", *FORM_FLAGS[form], *flags]
    assert main(["pod", *words, "--", *TRAIN]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--for", "jobset", *TYPE, *IMAGE], "give the verb to run after two hyphens"),
        (["--", *TRAIN], "pod manifest needs --for, one of jobset, xpk, slurm, skypilot"),
        (
            ["--for", "jobset", "--", "train", "bert_large", "--workdir", "runs/a"],
            "--workdir runs/a; it must be gs://",
        ),
        (["--for", "slurm", "--", "train", "no_such", "--workdir", "runs/a"], "no_such"),
        (["--for", "slurm", "--", "trian", "bert_tiny"], "trian"),
    ],
)
def test_the_verb_is_checked(words, message, capsys):
    assert main(["pod", "manifest", "--name", "bert", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("disk", "status"), [("shared", 0), ("-", 2)])
def test_another_python_checks_with_the_same_rule(disk, status, root):
    """A laptop without packages lets .venv's check the verb."""
    words = ["train", "bert_tiny", "--workdir", "runs/a", "data.store=runs/b"]
    command = [sys.executable, "-m", "pretrain.cli.verb_check", disk, *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == status
    assert ("expected gs://BUCKET/FOLDER" in done.stderr) == bool(status)


def test_other_actions_refuse_its_flags(capsys):
    assert main(["pod", "stop", "--name", "a", *ZONE, "--image", "b"]) == 2
    assert "pod stop does not take --image: for `pod manifest` only" in capsys.readouterr().err
    assert main(["pod", "stop", "--name", "a"]) == 2
    assert "pod stop needs --zone" in capsys.readouterr().err
    assert main(["pod", "stop", "--name", "a", "--for", "slurm", "--output", "b"]) == 2
    assert "pod stop does not take --for, --output: for" in capsys.readouterr().err


def test_a_manifest_is_written_to_a_file(tmp_path, capsys):
    path = tmp_path / "job.sbatch"
    made = make_manifest(capsys, "slurm")
    assert make_manifest(capsys, "slurm", "--output", str(path)) == f"# wrote {path}\n"
    assert path.read_text() == made


def test_a_manifest_that_cannot_be_written_leaves_the_old_one(tmp_path, capsys, monkeypatch):
    path = tmp_path / "job.sbatch"
    path.write_text("old")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_half(file, data, **_):
        with open(file, "wb") as opened:
            opened.write(data.encode()[:9] if isinstance(data, str) else data[:9])
        raise full

    monkeypatch.setattr(pathlib.Path, "write_bytes", write_half)
    monkeypatch.setattr(pathlib.Path, "write_text", write_half)
    words = ["manifest", "--for", "slurm", "--name", "bert", "--output", str(path), "--", *TRAIN]
    assert main(["pod", *words]) == 2
    assert f"{path}" in capsys.readouterr().err
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["job.sbatch"]


@pytest.mark.parametrize(("prefix", "program"), [("", ".venv/bin/cloze"), ("cloze.", "cloze")])
def test_the_program_is_that_of_the_installation(root, prefix, program):
    code = (
        "import sys, pretrain.host.command as command; command.PREFIX = sys.argv[1]; "
        "from pretrain.pod.manifests.manifest_request import ManifestRequest; "
        "print(*ManifestRequest('a', ()).program)"
    )
    words = [sys.executable, "-S", "-c", code, prefix]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == f"{program}\n"
