"""The pod launcher with a stand-in gcloud whose workers are folders here: what it runs, and what it
does on failures.
"""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile

import pytest

from data.corpus.buckets import BucketError
from pretrain.__main__ import main
from pretrain.cli import store_check
from pretrain.pod import archive
from pretrain.pod.answers import WorkerReport
from pretrain.pod.environment import ENVIRONMENT, build_environment
from pretrain.pod.gcloud import Pod
from pretrain.pod.tpu_types import suggest_type
from tests.command import split_words
from tests.docs_pages import read_blocks, read_verb, split_commands

STANDINS = pathlib.Path(__file__).parent / "standins"
POD = ["--name", "bert", "--zone", "us-east5-a"]
ASK = [*POD, "--type", "v5p-16", "--poll", "0"]
TRAIN = [
    *split_words("-- train bert_large --workdir 'gs://bucket/a run'"),
    "data.store=gs://bucket/it's",
    "train.stop_at_step=7",
]
pytestmark = pytest.mark.skipif(
    not shutil.which("flock"), reason="workers are Linux machines, and need flock"
)


class Cloud:
    """The stand-in's folder, read and written by the tests."""

    def __init__(self, folder):
        self.folder = folder
        self.train("exit 0")
        self.skip = 0

    def train(self, what):
        (self.folder / "training").write_text(what + "\n")

    def plan(self, *events):
        (self.folder / "plan.json").write_text(json.dumps(events))
        (self.folder / "counts.json").unlink(missing_ok=True)

    def calls(self):
        """Return the commands since the last call of this function."""
        path = self.folder / "calls.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        new, self.skip = rows[self.skip :], len(rows)
        return new

    def verbs(self):
        return [call[4] for call in self.calls()]

    def worker(self, number, path):
        path = self.folder / f"worker{number}" / path
        return path.read_text() if path.exists() else None


def commit_tree(folder):
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory, root):
    """Return the part of the project that a worker without a Python needs, as a checkout."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("setup.cfg", "constraints.txt", "pretrain/pod/worker.sh"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, tree / name)
    commit_tree(tree)
    return tree


@pytest.fixture
def cloud(tmp_path, monkeypatch, tree):
    monkeypatch.setattr(archive, "ROOT", tree)
    program = tmp_path / "bin" / "gcloud"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -S -E "{STANDINS / "gcloud.py"}" "$@"\n'
    )
    program.chmod(0o755)
    folder = tmp_path / "cloud"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("STANDIN", str(folder))
    monkeypatch.delenv("CLOZE_PYTHON", raising=False)  # the workers have a stand-in for Python
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield Cloud(folder)
    for keeper in folder.glob("*/cloze/run/keeper"):
        subprocess.run(
            ["bash", "-c", f"kill -KILL -- -{keeper.read_text().strip()}"],
            stderr=subprocess.DEVNULL,
        )


@pytest.fixture
def pod(cloud, capfd):
    """Return a pod that was created and filled."""
    assert main(["pod", "create", *ASK]) == 0
    assert main(["pod", "push", *POD]) == 0
    capfd.readouterr()
    cloud.calls()
    return cloud


def parse_commands(text):
    return [
        shlex.split(line)
        for line in text.split("# if the pod is taken away")[0].splitlines()
        if line and line[0] != "#"
    ]


def drop_repeats(commands):
    """Return commands without repeats: a run looks at its workers again until they are done."""
    return [*map(list, dict.fromkeys(map(tuple, commands)))]


# ---- without failures --------------------------------------------------------------


def test_a_dry_run_prints_exactly_what_a_run_runs(cloud, capfd):
    spot = [*ASK, "--spot"]
    for words in (
        ["create", *spot, "--create-flag=--network=a b"],
        ["push", *POD],
        ["run", *spot, *TRAIN],
        ["delete", *POD, "--yes"],
    ):
        assert main(["pod", words[0], "--dry-run", *words[1:]]) == 0
        printed_commands = parse_commands(capfd.readouterr().out)
        assert cloud.calls() == []
        assert main(["pod", *words]) == 0
        calls = drop_repeats(cloud.calls())
        assert calls == drop_repeats(printed_commands) and printed_commands, words
        capfd.readouterr()
    assert not cloud.folder.joinpath("pod.json").exists()


def test_a_dry_run_says_what_it_would_do(cloud, capfd):
    for words, line in (
        (["create", *ASK], "# would request 1 x v5p-16 as bert; next: pod push --wait"),
        (["run", *ASK, "--detach", *TRAIN], "# would start; `pod watch` watches it"),
        (["delete", *POD], "# would delete bert"),
    ):
        assert main(["pod", words[0], "--dry-run", *words[1:]]) == 0
        assert line in capfd.readouterr().out
    assert cloud.calls() == []


def test_run_trains_on_every_worker_with_unchanged_arguments(pod, capfd):
    assert main(["pod", "run", *ASK, "--env", "EXTRA=two words", *TRAIN]) == 0
    assert "the training is done. The pod is still there" in capfd.readouterr().out
    for number in (0, 1):
        assert shlex.split(pod.worker(number, "trained")) == TRAIN[1:]
        set_there = dict(
            line.split("=", 1) for line in pod.worker(number, "environment").splitlines()
        )
        assert set_there | build_environment("gs://bucket/a run") == set_there
        assert (
            set_there["JAX_COMPILATION_CACHE_DIR"] == "gs://bucket/a run/compiled"
            and set_there["EXTRA"] == "two words"
        )
        assert re.search(
            r"install .*--constraint (trees/\w{12})/constraints.txt -e \1\[tpu,tfdata\]",
            pod.worker(number, "installed"),
        )
        assert "ended with status 0" in pod.worker(number, "cloze/run/log")
    assert "delete" not in pod.verbs()


def test_an_earlier_tree_is_installed_again(pod, tree, tmp_path, monkeypatch):
    other = tmp_path / "other tree"
    shutil.copytree(tree, other)
    with (other / "constraints.txt").open("a") as lines:
        lines.write("another==1\n")
    for root in (other, tree, tree):  # the last one is installed already
        monkeypatch.setattr(archive, "ROOT", root)
        assert main(["pod", "push", *POD]) == 0
    installs = pod.worker(0, "installed").splitlines()
    assert (
        len([line for line in installs if re.search(r"-e trees/\w{12}\[tpu,tfdata\]", line)]) == 3
    )


def change_tree(tree, folder, monkeypatch):
    """Make a copy of the tree with another requirement the one that is pushed."""
    shutil.copytree(tree, folder)
    with (folder / "constraints.txt").open("a") as lines:
        lines.write("another==1\n")
    monkeypatch.setattr(archive, "ROOT", folder)


def test_a_push_that_fails_leaves_no_tree_that_could_start(pod, tree, tmp_path, monkeypatch, capfd):
    first = (pod.folder / "worker0/cloze/tree").readlink()
    change_tree(tree, tmp_path / "other tree", monkeypatch)
    (pod.folder / "no_packages").touch()
    assert main(["pod", "push", *POD]) == 1
    assert (pod.folder / "worker0/cloze/tree").readlink() == first
    assert main(["pod", "run", *ASK, *TRAIN]) == 1  # pip may have replaced some of the packages
    message = f"the last push has not installed all that tree {first.name} requires: run pod push"
    assert f"w-0: {message}" in capfd.readouterr().err and pod.worker(0, "trained") is None
    (pod.folder / "no_packages").unlink()
    assert main(["pod", "push", *POD]) == 0 and main(["pod", "run", *ASK, *TRAIN]) == 0


def test_a_tree_that_another_machine_has_pushed_is_not_started(
    pod, tree, tmp_path, monkeypatch, capfd
):
    path = archive.locate_archive(Pod("bert", "us-east5-a"))
    first = path.read_bytes()
    change_tree(tree, tmp_path / "other tree", monkeypatch)
    assert main(["pod", "push", *POD]) == 0
    path.write_bytes(first)
    assert main(["pod", "run", *ASK, *TRAIN]) == 1
    other = (pod.folder / "worker0/cloze/tree").readlink().name
    error = capfd.readouterr().err
    assert f"w-1: this worker has the tree {other}, not {archive.hash_archive(path)}" in error
    assert pod.worker(0, "trained") is None


def test_every_row_of_the_environment_has_its_reason():
    for name, (value, reason) in ENVIRONMENT.items():
        assert value and len(reason.split()) > 8, name
    assert "JAX_COMPILATION_CACHE_DIR" not in build_environment()
    with pytest.raises(ValueError, match=r"--env \(3 characters without =\): expected NAME=VALUE"):
        build_environment(extra=["A B"])


def test_slices_are_nodes_of_one_queued_resource(cloud, capfd):
    assert main(["pod", "create", *ASK, "--slices", "2", "--dry-run"]) == 0
    command = parse_commands(capfd.readouterr().out)[-1]
    assert {
        "--node-count=2",
        "--node-prefix=bert",
        "--accelerator-type=v5p-16",
        "--runtime-version=v2-alpha-tpuv5",
    } <= set(command)
    assert "--spot" not in command and not any(word.startswith("--node-id") for word in command)


@pytest.mark.slow
def test_logs_and_stop(pod, capfd):
    pod.train("wait")
    assert main(["pod", "run", "--detach", *ASK, *TRAIN]) == 0
    assert main(["pod", "logs", *POD, "--worker", "all"]) == 0
    output = capfd.readouterr().out
    assert "w-0: a line of the log" in output and "w-1: a line of the log" in output
    assert main(["pod", "stop", *POD]) == 0
    assert main(["pod", "watch", *ASK, *TRAIN]) == 143
    output = capfd.readouterr().out
    assert "w-1: stopped" in output and "was stopped by `pod stop`" in output
    assert "saved" in pod.worker(0, "cloze/run/log")


def test_logs_before_a_first_run_say_so(pod, capfd):
    for words in ([], ["--worker", "all"]):
        assert main(["pod", "logs", *POD, *words]) == 0
        captured = capfd.readouterr()
        assert "w-0: nothing has run here yet: pod run starts a training\n" in captured.err
        assert "tail:" not in captured.err + captured.out


# ---- repeated and partial actions --------------------------------------------------


def test_run_refuses_to_start_twice(pod, capfd):
    pod.train("wait")
    assert main(["pod", "run", "--detach", *ASK, *TRAIN]) == 0
    assert main(["pod", "run", *ASK, *TRAIN]) == 2
    assert "a training runs already on w-0, w-1" in capfd.readouterr().err
    assert main(["pod", "push", *POD]) == 1  # nor is the code replaced while it runs
    assert "w-0: a training runs here already (train bert_large" in capfd.readouterr().err
    assert main(["pod", "doctor", *POD]) == 1
    assert len(pod.worker(0, "trained").splitlines()) == 1
    assert main(["pod", "stop", *POD, "--force"]) == 0


def test_a_start_that_comes_too_late_does_not_end_the_one_before(pod, capfd, monkeypatch):
    pod.train("wait")
    assert main(["pod", "run", "--detach", *ASK, *TRAIN]) == 0
    monkeypatch.setattr("pretrain.pod.environment.START", "another", raising=False)
    monkeypatch.setattr("pretrain.pod.actions.START", "another", raising=False)
    idle = [WorkerReport("w-0", "idle", 0), WorkerReport("w-1", "idle", 0)]
    monkeypatch.setattr(Pod, "list_reports", lambda pod: idle)  # asked before the first start
    assert main(["pod", "run", *ASK, *TRAIN]) == 1
    assert "w-0: a training runs here already" in capfd.readouterr().err
    assert pod.worker(0, "cloze/run/stopped") is None


@pytest.mark.slow
def test_a_worker_that_cannot_be_reached_leaves_none_running(pod, capfd):
    pod.train("wait")
    pod.plan({"on": "ssh", "nth": 1, "deaf": 1})
    assert main(["pod", "run", *ASK, *TRAIN]) == 1
    assert "worker 1: Connection timed out" in capfd.readouterr().err
    assert pod.worker(0, "trained") is None
    pod.plan({"on": "ssh", "nth": 2, "deaf": 1})
    assert main(["pod", "run", *ASK, *TRAIN]) == 1
    assert "not every worker could start" in capfd.readouterr().err
    assert pod.worker(0, "trained") and "ended" not in pod.worker(0, "cloze/run/log")
    pod.train("exit 0")
    assert main(["pod", "run", *ASK, *TRAIN]) == 0


# ---- preemption ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_preempted_pod_is_requested_again_and_resumes(cloud, capfd, monkeypatch):
    spot = [*ASK, "--spot"]
    assert main(["pod", "create", *spot]) == 0 and main(["pod", "push", *POD]) == 0
    monkeypatch.setattr(
        archive, "ROOT", cloud.folder
    )  # whatever happens to the tree here, the new pod gets the archive of the old one
    cloud.calls()
    cloud.train("wait")
    quota = "ERROR: (gcloud.compute.tpus.queued-resources.create) RESOURCE_EXHAUSTED: Quota limit 'TPUS' exceeded"
    gone = {"on": "describe", "nth": 4, "become": {"state": "SUSPENDED"}, "training": "exit 0\n"}
    cloud.plan(
        {"on": "describe", "nth": 3, "become": {"state": "SUSPENDING"}},
        gone,
        {"on": "create", "nth": 1, "fail": quota},
    )
    capfd.readouterr()
    assert main(["pod", "run", *spot, *TRAIN]) == 0
    output = capfd.readouterr().out
    assert (
        "is SUSPENDING" in output
        and "was taken away (SUSPENDED)" in output
        and "Quota limit 'TPUS' exceeded" in output
    )
    calls = cloud.calls()
    verbs = [call[4] for call in calls]
    assert verbs.count("delete") == 1 and verbs.count("create") == 2 and verbs.count("scp") == 1
    created = [call for call in calls if call[4] == "create"]
    assert created[0] == created[1] and "--spot" in created[1]
    starts = [call for call in calls if any(" start " in word for word in call)]
    assert len(starts) == 2 and starts[0] == starts[1]
    assert shlex.split(cloud.worker(1, "trained")) == TRAIN[1:]


def test_push_copies_tracked_files_of_the_working_tree(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    tmp_path = tmp_path / "tree"
    tmp_path.mkdir()
    (tmp_path / "run.sh").write_text("one")
    (tmp_path / "run.sh").chmod(0o755)
    commit_tree(tmp_path)
    (tmp_path / "new.py").write_text("forgotten")
    summary = archive.pack_tree(first, tmp_path)
    assert (
        summary.startswith("1 files")
        and "NOT pushed: 1 files" in summary
        and "changed" not in summary
    )
    (tmp_path / "run.sh").touch()
    archive.pack_tree(second, tmp_path)
    assert archive.hash_archive(first) == archive.hash_archive(second)
    (tmp_path / "run.sh").write_text("two")  # uncommitted changes are pushed and reported
    assert "with 1 files changed since" in archive.pack_tree(second, tmp_path)
    assert archive.hash_archive(first) != archive.hash_archive(second)
    with tarfile.open(second) as tar:
        assert [(member.name, member.mode) for member in tar] == [("run.sh", 0o755)]
        assert tar.extractfile("run.sh").read() == b"two"
    with pytest.raises(ValueError, match="not a git checkout"):
        archive.pack_tree(second, tmp_path.parent)
    (tmp_path / "site-packages").mkdir()  # an installed wheel inside someone's checkout
    with pytest.raises(ValueError, match="it tracks none in .*: run pod in a checkout of Cloze"):
        archive.pack_tree(second, tmp_path / "site-packages")


@pytest.mark.slow
def test_the_four_commands_of_the_page_train(cloud, asked, capfd, monkeypatch):
    monkeypatch.setattr("pretrain.pod.actions.time.sleep", lambda seconds: None)
    block = next(block for block in read_blocks("docs/spot_slice.md") if "pod create" in block.text)
    commands = [shlex.split(read_verb(line)) for line in split_commands(block.text)]
    assert [words[1] for words in commands] == ["create", "push", "run", "logs"]
    for words in commands:
        assert main([word for word in words if word != "--follow"]) == 0, words
    assert "the training is done" in capfd.readouterr().out
    trained = shlex.split(cloud.worker(1, "trained"))
    assert trained == commands[2][commands[2].index("train") :]


def test_a_pod_is_not_requested_where_no_push_can_follow(cloud, tmp_path, monkeypatch, capfd):
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setattr(archive, "ROOT", tmp_path / "site-packages")
    for words in (["create", *ASK], ["create", *ASK, "--dry-run"]):
        assert main(["pod", *words]) == 2
        captured = capfd.readouterr()
        assert "is not a git checkout" in captured.err and captured.out == ""
        assert captured.err.endswith("run pod in a checkout of Cloze\n")
    assert cloud.calls() == []


# ---- bad arguments -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["create", *POD], "pod create needs --type, e.g. v5p-32"),
        (["create", *POD, "--type", "v9-8"], "--type v9-8: no runtime is known for it; known types are v2-N, v3-N"),
        (["create", *POD, "--type", "tpu7x-8"], "GKE only"),
        (["create", *POD, "--type", "v4-7", "--dry-run"], "counts TensorCores, two a chip"),
        (["create", *POD, "--type", "v5p-", "--dry-run"], "--type v5p-: no such accelerator type"),
        (["create", "--name", "-x", "--zone", "z", "--type", "v4-8"], "expected one argument"),
        (["create", "--name", "Bert", "--zone", "z", "--type", "v4-8"], "--name 'Bert': gcloud accepts lower-case"),
        (["run", *ASK], "pod run: give the verb to run after two hyphens"),
        (["run", *ASK, "--", "train", "bert_large"], "no --workdir; it must be gs://BUCKET/FOLDER"),
        (["run", *ASK, "--", "train", "bert_large", "--workdir", "runs/a"], "--workdir runs/a; it must be gs://"),
        (["run", *ASK, *TRAIN], "nothing was pushed to bert from this machine"),
        (["watch", *ASK, *TRAIN], "nothing was pushed to bert from this machine"),
        (["push", *POD, "configs"], "pod push takes no verb to run: configs"),
        (["create", *ASK, "--slices", "0"], "--slices 0"),
        (["push", *POD, "--wait", "--poll", "inf"], "--poll inf --tries 20: expected"),
        (["push", *POD, "--wait", "--poll", "nan"], "--poll nan --tries 20: expected"),
        (["stop", *POD, "--detach"], "pod stop does not take --detach, a flag of pod run"),
        (["create", *ASK, "--force"], "pod create does not take --force, a flag of pod stop"),
        (["logs", *POD, "--worker", "all", "--follow"], "shows one worker"),
        (["delete", *POD], "there is no pod bert in us-east5-a: nothing is deleted"),
        (["push", *POD], "pod bert does not exist: `pod create` requests it"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused(words, message, cloud, capfd):
    try:
        status = main(["pod", *words])
    except SystemExit as left:
        status = left.code
    assert message in capfd.readouterr().err
    assert status == (1 if "pod bert" in message else 2)
    assert set(cloud.verbs()) <= {"describe"}


def test_a_pod_of_another_kind_is_not_taken_for_this_one(pod, capfd):
    for more, message in (
        (["--type", "v5p-32"], "--type v5p-16, the command line has v5p-32"),
        (["--spot"], "--spot False, the command line has True"),
    ):
        assert main(["pod", "run", *ASK, *more, *TRAIN]) == 2
        assert message in capfd.readouterr().err
    assert main(["pod", "create", *ASK]) == 2
    assert "pod bert exists already, it is ACTIVE" in capfd.readouterr().err


def test_a_refusal_has_its_remedy(cloud, capfd):
    refused = (
        "ERROR: (gcloud) RESOURCE_EXHAUSTED: Quota limit 'TPUV4' has been exceeded. Limit: 0 in"
    )
    cloud.plan({"on": "create", "nth": 1, "fail": refused})
    assert main(["pod", "create", *ASK]) == 1
    error = capfd.readouterr().err
    assert refused in error and "# the project has no quota for this type" in error


def test_a_request_that_failed_says_why(pod, capfd):
    why = 'There is no more capacity in the zone "us-east5-a"'
    pod.plan({"on": "describe", "nth": 1, "become": {"state": "FAILED", "error": why}})
    assert main(["pod", "push", *POD, "--wait"]) == 1
    error = capfd.readouterr().err
    assert f"pod bert is FAILED: {why}" in error and "# no machine is free in this zone" in error


def test_delete_asks_first(pod, capfd, monkeypatch):
    assert main(["pod", "delete", *POD]) == 2
    assert "add --yes" in capfd.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda text: "yes")
    assert main(["pod", "delete", *POD]) == 2
    assert "delete" not in pod.verbs()
    monkeypatch.setattr("builtins.input", lambda text: "bert")
    assert main(["pod", "delete", *POD]) == 0
    assert pod.verbs() == ["describe", "delete"]


def test_pods_of_one_name_have_an_archive_for_each_project_and_zone(cloud, tree, capfd):
    assert main(["pod", "create", *ASK]) == 0
    for words in ([], ["--project", "other"]):
        assert main(["pod", "push", *POD, *words]) == 0
    folder = cloud.folder.parent / "cache" / "cloze" / "pod"
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.gz")) == [
        "default/us-east5-a/bert.tar.gz",
        "other/us-east5-a/bert.tar.gz",
    ]


def test_the_archive_of_an_older_version_is_found(pod):
    """It was named after the pod alone."""
    path = archive.locate_archive(Pod("bert", "us-east5-a"))
    path.replace(path.parents[2] / path.name)
    archive.adopt_archive(Pod("bert", "us-east5-a"))
    assert path.exists() and not (path.parents[2] / path.name).exists()
    archive.adopt_archive(Pod("bert", "us-east5-a", "other"))
    assert path.exists()


def test_two_pushes_at_once_are_one(pod, capfd):
    with archive.lock_archive(Pod("bert", "us-east5-a")):
        assert main(["pod", "push", *POD]) == 2
    assert "another `pod push` to bert is under way" in capfd.readouterr().err
    assert main(["pod", "push", *POD]) == 0


def test_who_creates_or_deletes_a_pod_removes_the_mark_of_a_watch(pod, capfd):
    mark = archive.locate_mark(Pod("bert", "us-east5-a"))
    mark.touch()
    assert main(["pod", "delete", *POD, "--yes", "--dry-run"]) == 0 and mark.exists()
    assert main(["pod", "delete", *POD, "--yes"]) == 0 and not mark.exists()
    for worker in pod.folder.glob("worker*"):
        shutil.rmtree(worker)
    mark.touch()
    assert main(["pod", "delete", *POD, "--yes"]) == 1 and not mark.exists()  # it is gone already
    mark.touch()
    assert main(["pod", "create", *ASK]) == 0 and not mark.exists()


def test_gcloud_that_is_not_there(monkeypatch, capfd):
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["pod", "stop", *POD]) == 2
    assert "there is no `gcloud` on PATH" in capfd.readouterr().err


def test_the_launcher_needs_neither_the_environment_nor_jax(root):
    code = "import sys; from pretrain.__main__ import main; main(sys.argv[1:]); print(sorted({'jax', 'numpy', 'etils'} & sys.modules.keys()))"
    words = ["pod", "create", *ASK, "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *words],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    line = subprocess.run(
        ["bash", "launch.sh", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    assert line == "".join(f"{line}\n" for line in done.stdout.splitlines()[:-1])
    for script in ("launch.sh", "pretrain/pod/worker.sh"):
        subprocess.run(["bash", "-n", script], cwd=root, check=True)


# ---- the verb is checked before there is a pod -----------------------------------------

BUCKET = ["--workdir", "gs://bucket/run", "data.store=gs://bucket/books"]


@pytest.mark.parametrize("action", ["create", "run", "watch"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian", "bert_large", *BUCKET], "no verb 'trian': did you mean train?"),
        (["train", "bert_lage", *BUCKET], "bert_large"),
        (["train", "bert_large", *BUCKET, "model.depht=3"], "did you mean 'depth'"),
        (["train", "bert_large", *BUCKET, "train.steps=many"], "train.steps"),
        (["train", "bert_large", *BUCKET, "model.heads=7"], "heads"),
        (["train", "bert_large", *BUCKET, "--alow-changes"], "--alow-changes"),
        (["train", "bert_large", "--workdir", "gs:///run"], "--workdir gs:///run: expected gs://"),
        (["train", "bert_large", *BUCKET, "data.store=runs/books"], "data.store=runs/books: exp"),
        (["train", "bert_large", *BUCKET, "data.store=gs:/bucket/books"], "gs:/bucket/books: exp"),
        (
            ["train", "bert_large", *BUCKET, "data.store=s3://bucket/books"],
            "s3://bucket/books: exp",
        ),
        (["train", "bert_large", *BUCKET[:2]], "data.store=: expected gs://BUCKET/FOLDER"),
    ],
)
def test_a_verb_that_would_fail_on_the_workers_is_refused_first(
    action, words, message, cloud, capfd
):
    try:
        status = main(["pod", action, *ASK, "--", *words])
    except SystemExit as left:
        status = left.code
    assert status == 2 and message in capfd.readouterr().err
    assert cloud.calls() == []


@pytest.fixture
def asked(monkeypatch):
    """Return the URLs that are asked for, of buckets that cannot be reached."""
    urls = []

    def refuse(url):
        urls.append(str(url))
        raise BucketError(f"{url}: there is no network")

    monkeypatch.setattr(store_check, "check_bucket", refuse)
    return urls


def test_a_pod_is_requested_once_its_verb_is_checked(cloud, asked, capfd):
    assert main(["pod", "create", *ASK, *TRAIN]) == 0
    assert cloud.verbs() == ["describe", "create"]
    assert asked == ["gs://bucket/a run"]
    line = "# not checked here: gs://bucket/a run: there is no network\n"
    assert capfd.readouterr().err == line


def test_only_create_looks_at_the_store(pod, asked):
    """A dry run needs no network, and who runs or watches has paid already."""
    assert main(["pod", "create", *ASK, "--dry-run", *TRAIN]) == 0
    for words in (["run", "--detach"], ["watch"]):
        assert main(["pod", words[0], *ASK, *words[1:], *TRAIN]) == 0
    assert asked == []


def run_bare(root, environment_python, *words):
    """Run `pod run` with a Python that has no packages; `environment_python` is .venv's."""
    code = (
        "import pathlib, sys; from pretrain.cli import verb_check; "
        "verb_check.ENVIRONMENT_PYTHON = pathlib.Path(sys.argv[1]); "
        "from pretrain.__main__ import main; sys.exit(main(sys.argv[2:]))"
    )
    words = ["pod", "run", *ASK, "--dry-run", "--detach", "--", "train", "bert_large", *words]
    return subprocess.run(
        [sys.executable, "-S", "-c", code, str(environment_python), *words],
        cwd=root,
        capture_output=True,
        text=True,
    )


def test_an_environment_that_lacks_packages_checks_nothing(cloud, tmp_path, monkeypatch, capfd):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho ModuleNotFoundError >&2; exit 1\n")
    monkeypatch.setattr("pretrain.cli.verb_check.PACKAGES", ("absent_package",))
    monkeypatch.setattr("pretrain.cli.verb_check.ENVIRONMENT_PYTHON", python)
    for mode in (0o644, 0o755):
        python.chmod(mode)
        assert main(["pod", "create", *ASK, "--dry-run", *TRAIN]) == 0
        error = capfd.readouterr().err
        assert "# not checked here: train bert_large" in error and "ModuleNotFound" not in error


@pytest.mark.slow
def test_a_laptop_without_packages_checks_by_the_environment_or_says_that_it_does_not(root):
    done = run_bare(root, sys.executable, *BUCKET, "model.depht=3")
    assert done.returncode == 2 and "did you mean 'depth'" in done.stderr and done.stdout == ""
    assert run_bare(root, sys.executable, *BUCKET).returncode == 0
    done = run_bare(root, "/nowhere/python", *BUCKET, "model.depht=3")
    assert done.returncode == 0 and "would start" in done.stdout
    assert "not checked here: train bert_large" in done.stderr
    assert "This Python has no numpy and no etils" in done.stderr


# ---- values of --env, which may be secrets -----------------------------------------

SECRET = "hunter2 it's $HOME `x`"


def find_secret(*folders):
    """Return the files below folders that have a part of SECRET."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sorted(path.name for path in files if b"hunter2" in path.read_bytes())


def test_a_value_of_env_reaches_the_training_and_nothing_else(pod, tmp_path, capfd, monkeypatch):
    """Not the commands, which lists of processes and gcloud's own log have, nor a file that stays."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    assert main(["pod", "run", *ASK, "--env", f"EXTRA_API_KEY={SECRET}", *TRAIN]) == 0
    for number in (0, 1):
        assert f"EXTRA_API_KEY={SECRET}\n" in pod.worker(number, "environment")
    assert "hunter2" not in "".join(capfd.readouterr())
    assert "hunter2" not in json.dumps(pod.calls())
    # The stand-in for Python records its environment.
    assert set(find_secret(tmp_path)) == {"environment"}


@pytest.mark.parametrize("verb", ["ssh", "scp"])
def test_a_value_of_env_is_not_in_the_message_of_a_failure(pod, tmp_path, capfd, verb):
    failure = {"on": verb, "fail": f"ERROR: export EXTRA_API_KEY={SECRET}"}
    pod.plan(*(failure | {"nth": n} for n in range(1, 9)))
    words = ["pod", "run", *ASK, "--tries", "1", "--env", f"EXTRA_API_KEY={SECRET}", *TRAIN]
    assert main(words) != 0
    output = "".join(capfd.readouterr())
    assert "ERROR: export EXTRA_API_KEY=$EXTRA_API_KEY" in output and "hunter2" not in output
    assert "hunter2" not in json.dumps(pod.calls())


def test_a_dry_run_and_a_malformed_env_show_no_value(cloud, capfd):
    words = ["pod", "run", "--dry-run", *ASK]
    assert main([*words, "--env", f"EXTRA_API_KEY={SECRET}", *TRAIN]) == 0
    for wrong in ("WANDB-API-KEY=hunter2", "hunter2"):
        assert main([*words, "--env", wrong, *TRAIN]) == 2
    assert "hunter2" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("v5e-16", "v5litepod-16"), ("v5litpod-8", "v5litepod-8"), ("v5p32", "v5p-32"),
        ("V4-32", "v4-32"), ("v6e", "v6e-N"), ("v9-8", ""), ("gpu", ""),
    ],
)  # fmt: skip
def test_the_nearest_type_is_named(given, meant):
    assert suggest_type(given) == (f": did you mean {meant}?" if meant else "")
