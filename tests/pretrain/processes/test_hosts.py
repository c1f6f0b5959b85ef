"""Several real processes on this machine: the same run as by one process, and an error if they
disagree.
"""

import json
import shutil
import signal
import socket
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from pretrain.__main__ import main
from pretrain.cli import local
from pretrain.processes import cluster_detection, exchange, fact_comparison
from pretrain.processes import processes as cluster
from pretrain.settings.overrides import ConfigError
from pretrain.training.fits import preflight
from pretrain.workdir import metrics_file, samples_file
from pretrain.workdir.read_params import restore_params
from pretrain.workdir.workdir import Workdir
from tests import forks

pytestmark = pytest.mark.slow

# With AdamW's usual epsilon of 1e-6, a gradient that is rounding noise, such as of rarely used
# positions, moves a parameter by as much as it differs between two orders of summation, divided by
# epsilon: up to 2e-6 of a parameter's norm. With this epsilon it stays below 1e-7.
STEPS = [
    "optimizer.epsilon=0.01", "train.steps=4", "checkpoint.every=2", "evaluate.every=4",
    "evaluate.samples=3", "mesh.data=2", "mesh.fsdp=2",
]  # fmt: skip


def launch_processes(root, processes, devices, *words):
    return forks.run(
        [sys.executable, "-m", "pretrain", "local", "--devices", str(devices), str(processes), *map(str, words)],
        cwd=root, capture_output=True, text=True, timeout=250,
    )  # fmt: skip


def list_leaves(tree):
    import jax

    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


def assert_close(one, other, tolerance):
    """Compare by the norm of each parameter's difference."""
    for a, b in zip(list_leaves(one), list_leaves(other), strict=True):
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b) + 1e-7


@pytest.fixture(scope="module")
def alone(root, configs, tmp_path_factory):
    """Return the workdir of one process with four devices."""
    workdir = tmp_path_factory.mktemp("alone") / "run"
    done = launch_processes(root, 1, 4, "train", configs["bert"], "--workdir", workdir, *STEPS)
    assert done.returncode == 0, done.stdout + done.stderr
    return workdir


def test_two_processes_continue_the_run_of_one(alone, root, configs, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(alone, workdir)
    for name in ("checkpoints/4", "tensorboard"):
        shutil.rmtree(workdir / name)
    (workdir / samples_file.NAME).unlink()
    rows = (workdir / "metrics.jsonl").read_text().splitlines(keepends=True)
    (workdir / "metrics.jsonl").write_text("".join(rows[:2]))
    words = ["train", configs["bert"], "--workdir", workdir, *STEPS]
    done = launch_processes(root, 2, 2, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing after step 2" in done.stdout and "4 of 8 rows" in done.stdout
    assert_same_runs(workdir, alone)
    assert [line["step"] for line in samples_file.read_samples(workdir / samples_file.NAME)] == [4]


def assert_same_runs(workdir, alone):
    """Compare parameters, rows and samples of step 4, up to the order of summation."""
    _, step, params = restore_params(workdir)
    assert step == 4
    assert_close(params, restore_params(alone)[2], 5e-7)
    seen, expected = (
        metrics_file.read_metrics(workdir / "metrics.jsonl"),
        metrics_file.read_metrics(alone / "metrics.jsonl"),
    )
    assert [row["step"] for row in seen] == [1, 2, 3, 4]
    for row, other in zip(seen, expected, strict=True):
        assert row["tokens"] == other["tokens"] and row["loss"] == pytest.approx(
            other["loss"], rel=1e-6
        )
    assert seen[-1]["heldout_loss"] == pytest.approx(expected[-1]["heldout_loss"], rel=1e-6)
    assert not list(workdir.glob(".preflight*"))
    samples, expected = (
        samples_file.read_samples(path / samples_file.NAME)[-1] for path in (workdir, alone)
    )
    assert samples["step"] == expected["step"] == 4 and len(samples["samples"]) == 3
    gaps, others = (
        [gap for one in line["samples"] for gap in one["gaps"]] for line in (samples, expected)
    )
    assert gaps == [
        gap | {"probability": pytest.approx(gap["probability"], abs=2e-4)} for gap in others
    ]


@pytest.mark.more
@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (4, 1)])
def test_two_processes_make_the_run_of_one_and_others_continue_it(
    request, alone, root, configs, tmp_path, processes, devices
):
    if processes == 2:
        request.getfixturevalue("whole")
    workdir = tmp_path / "run"
    first = launch_processes(
        root, 2, 2, "train", configs["bert"], "--workdir", workdir, *STEPS, "train.stop_at_step=2"
    )
    assert first.returncode == 0, first.stdout + first.stderr
    second = launch_processes(
        root, processes, devices, "train", configs["bert"], "--workdir", workdir, *STEPS
    )
    assert second.returncode == 0, second.stdout + second.stderr
    assert (
        "continuing after step 2" in second.stdout
        and f"{8 // processes} of 8 rows" in second.stdout
    )
    assert_same_runs(workdir, alone)
    samples, expected = (
        samples_file.read_samples(path / samples_file.NAME) for path in (workdir, alone)
    )
    assert [line["step"] for line in samples] == [2, 4] and [line["step"] for line in expected] == [
        4
    ]


REPORT_PROGRAM = "from pretrain.processes import stragglers; stragglers.REPORT_INTERVAL = 0\n"
SLOW = "import time; from pretrain.mesh import device_feed as feed; place = feed.make_global_arrays; feed.make_global_arrays = lambda *words: time.sleep(0.5) or place(*words)\n"


@pytest.mark.more
@pytest.mark.timeout(600)
def test_two_processes_train_phases_and_ramps_as_one(root, configs, tmp_path):
    """The batch rises from 8 to 16 rows in the first phase; the second has 8 shorter rows."""
    words = [
        *("optimizer.epsilon=0.01", "evaluate.every=0", "mesh.data=2", "mesh.fsdp=2"),
        *("phases.a.steps=3", "data.batch_size=16", "data.batch_ramp.start=8"),
        *("data.batch_ramp.steps=1", "phases.b.steps=1", "phases.b.data.batch_size=8"),
        "phases.b.data.objective.length=16",
    ]
    params, rows = [], []
    for processes, devices in ((1, 4), (2, 2)):
        workdir = tmp_path / str(processes)
        command = ("train", configs["bert"], "--workdir", workdir, *words)
        done = launch_processes(root, processes, devices, *command)
        assert done.returncode == 0, done.stdout + done.stderr
        params.append(restore_params(workdir)[2])
        rows.append(metrics_file.read_metrics(workdir / "metrics.jsonl"))
    assert "this one builds 4 of 8 rows" in done.stdout
    assert_close(params[1], params[0], 5e-7)
    for row, other in zip(*rows, strict=True):
        assert (row["step"], row["phase"], row["tokens"]) == (
            *(other["step"], other["phase"], other["tokens"]),
        )
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-6)
    assert [row["phase"] for row in rows[1]] == ["a", "a", "a", "b"]
    tokens = [row["tokens"] for row in rows[1]]
    assert tokens[1] > 1.5 * tokens[0] and tokens[1] > tokens[3]


@pytest.mark.held_by(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_one_process_saves_all_at_the_same_step_and_the_slow_one_is_named(
    request, root, configs, tmp_path, number
):
    if number == signal.SIGTERM:
        request.getfixturevalue("whole")
    workdir = tmp_path / "run"
    endless = ["train.steps=100000", "checkpoint.every=100000", "evaluate.every=0", "mesh.data=2"]
    words = ["train", str(configs["bert"]), "--workdir", str(workdir), *endless]
    processes = start_processes(root, [words, words], code=[REPORT_PROGRAM, REPORT_PROGRAM + SLOW])
    end = time.monotonic() + 120
    while len(metrics_file.read_metrics(workdir / "metrics.jsonl")) < 8 and time.monotonic() < end:
        time.sleep(0.05)
    processes[1].send_signal(number)
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert sorted(process.returncode for process in processes) == sorted(
        [128 + signal.SIGTERM, 128 + number]
    ), outputs
    (step,) = [
        int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit()
    ]
    assert [row["step"] for row in metrics_file.read_metrics(workdir / "metrics.jsonl")] == list(
        range(1, step + 1)
    )
    assert f"saved step {step}" in outputs[0]
    metrics_rows = metrics_file.read_metrics(workdir / "metrics.jsonl")[
        3:
    ]  # by then both have logged a step
    assert min(row["input_seconds_max"] for row in metrics_rows) >= 0.5
    assert sum(row["slowest_host"] for row in metrics_rows) > len(metrics_rows) / 2, metrics_rows


def by_jax(i, count, port):
    return [], {}


def by_flags(i, count, port):
    return ["--coordinator", f"127.0.0.1:{port}", "--processes", str(count), "--process", str(i)], {
        "CLOZE_CLUSTER": "none"
    }


def by_slurm(i, count, port):
    """Set the variables of `srun --ntasks=count` on one node."""
    slurm_variables = {
        "JOB_ID": 7, "STEP_NODELIST": "localhost", "NTASKS": count, "PROCID": i, "LOCALID": i,
        "STEP_TASKS_PER_NODE": count,
    }  # fmt: skip
    return [], {
        "CLOZE_CLUSTER": "slurm",
        "JAX_COORDINATOR_PORT": str(port),
        **{f"SLURM_{name}": str(value) for name, value in slurm_variables.items()},
    }


def start_processes(root, words, joined=by_jax, code=None):
    """Start one process for each list of arguments, as one run. code: what each process executes
    first.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for i, one in enumerate(words):
        flags, environment = joined(i, len(words), port)
        command = local.build_command(i, len(words), 1, port, [*one, *flags])
        if joined is not by_jax:
            command["env"] = {
                name: value
                for name, value in command["env"].items()
                if name not in cluster_detection.JAX_VARIABLES
            } | environment
        if code:
            program = (
                code[i]
                + "import sys; from pretrain.__main__ import main; sys.exit(main(sys.argv[1:]))"
            )
            arguments = command["args"][command["args"].index("pretrain") + 1 :]
            command["args"] = [sys.executable, "-c", program, *arguments]
        processes.append(forks.Popen(**command, cwd=root))
    return processes


def test_hosts_that_do_not_agree_are_named_before_anything_is_compiled(root, configs, tmp_path):
    common = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    other = [*common[:3], str(tmp_path / "elsewhere"), "evaluate.every=0"]
    processes = start_processes(root, [common, [*other, "optimizer.learning_rate=0.5"]], by_slurm)
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [2, 2], outputs
    for text in outputs:
        assert (
            "the hosts of this run do not agree" in text
            and "(process 1) has configuration optimizer.learning_rate 0.5, 1 of 2 have 0.01 (process 0)"
            in text
        )
        assert "is another folder" in text and "step 1" not in text
    assert not (tmp_path / "run" / "config.json").exists() and not list(
        (tmp_path / "run").glob(".preflight*")
    )


TPU_SEEN = """
import os; del os.environ["JAX_PLATFORMS"]
from pretrain.processes import accelerator_detection
from pretrain.training.fits import preflight
preflight.find_accelerators = lambda: [accelerator_detection.Accelerators("TPU", 4, ("/dev/accel0", "/dev/accel1"))]
"""


def test_all_hosts_stop_where_one_would_train_on_the_cpu_beside_its_tpu(root, configs, tmp_path):
    words = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    processes = start_processes(root, [words, words], code=["", TPU_SEEN])
    for process in processes:
        text = process.communicate(timeout=120)[0]
        assert (
            process.returncode == 2
            and "(process 1): this machine has 4 TPU chips (/dev/accel0, ...), but JAX runs on the cpu"
            in text
        ), text
    assert not (tmp_path / "run").exists()


HANG = """
import os, pathlib, signal, time
from pretrain.training.fits import preflight

def stop(workdir):  # once the other has come as far: before that it waits for JAX, which has patience of its own
    while not any(pathlib.Path(workdir).glob("*")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGSTOP)

preflight._write_probe = stop
"""
SOON = "from pretrain.processes import exchange; exchange.TIMEOUT = 1\n"


@pytest.mark.held_by(1)
@pytest.mark.parametrize("hung", [1, 0])
def test_a_host_that_hangs_is_named_and_the_others_leave(root, configs, tmp_path, hung):
    words = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    processes = start_processes(
        root, [words, words], by_flags, [HANG if i == hung else SOON for i in range(2)]
    )
    try:
        output = processes[1 - hung].communicate(timeout=150)[
            0
        ]  # most of it is start-up on a busy machine
        assert processes[hung].poll() is None
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    who = f"process 1 ({socket.gethostname()}) of 2" if hung else "process 0, the coordinator, of 2"
    assert (
        processes[1 - hung].returncode == 2
        and f"{who} has not come as far as the others within 1 s" in output
    ), output
    assert "ends without them" in output and "Check failure" not in output


def test_differences_are_reported_against_the_majority():
    same = {"configuration": "a", "local devices": 4, "probe": "n"}
    host_facts = [same | {"host": f"host{i} (process {i})"} for i in range(4)]
    assert fact_comparison.find_differences(host_facts) == []
    host_facts[2] |= {"local devices": 3, "probe": "m"}
    assert fact_comparison.find_differences(host_facts) == [
        "host2 (process 2) has local devices 3, 3 of 4 have 4 (process 0, 1, 3)"
    ]


def test_of_a_configuration_and_of_the_code_the_key_that_differs_is_named():
    plain = {"train": {"steps": 10, "seed": 0}, "mix": [{"rate": 1}, {"rate": 2}]}
    other = {"train": {"steps": 20, "seed": 1}, "mix": [{"rate": 1}]}
    facts = [
        {
            "host": f"host{i}",
            "configuration": fact_comparison.flatten_tree(tree),
            "code": {"data": code},
        }
        for i, (tree, code) in enumerate(
            [(plain, "a"), (plain, "a"), (other, "b")] + [(plain, "a")] * 3
        )
    ]
    assert fact_comparison.find_differences(facts) == [
        "host2 has code data b, 5 of 6 have a (process 0, 1, 3, 4, ...)",
        "host2 has configuration train.steps 20, 5 of 6 have 10 (process 0, 1, 3, 4, ...) "
        "(2 more keys of it differ)",
    ]
    del facts[2]["configuration"]["train.steps"], facts[2]["code"]
    facts[2]["code"] = {"data": "a", "data/new": "c"}
    assert fact_comparison.find_differences(facts)[0].startswith(
        "host2 has code data/new c, 5 of 6 have nothing"
    )
    assert (
        "host2 has configuration train.steps nothing" in fact_comparison.find_differences(facts)[1]
    )


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (("/data/" + "x" * 90 + "/a", "/data/" + "x" * 90 + "/b"), "xx/b"),  # alike at first
        ((1, "1"), '"1"'),
        ((None, []), "[]"),
        ((None, "nothing"), "nothing"),
        ((None, "null"), '"null"'),
        ((0, False), "false"),
    ],
)
def test_any_two_values_that_differ_are_a_difference(values, shown):
    facts = [
        {
            "host": f"host{i}",
            "configuration": fact_comparison.flatten_tree({"data": {"store": value}}),
        }
        for i, value in enumerate(values)
    ]
    (found,) = fact_comparison.find_differences([facts[0], facts[0], facts[1]])
    assert found.startswith("host1 has configuration data.store") and f"{shown}," in found
    whole = [{"host": fact["host"], "jax": value} for fact, value in zip(facts, values)]
    assert len(fact_comparison.find_differences(whole)) == 1


def test_a_key_that_only_one_host_has_is_a_difference():
    facts = [
        {"host": f"host{i}", "configuration": fact_comparison.flatten_tree(tree)}
        for i, tree in enumerate(({"model": {"clusters": None}}, {"model": {}}))
    ]
    assert len(fact_comparison.find_differences(facts)) == 1


def test_the_program_is_compared_folder_by_folder(monkeypatch, tmp_path):
    for name in ("data/store/reader.py", "data/config.py", "models/bert.py", "pretrain/run.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(preflight, "ROOT", tmp_path)
    before = preflight.compute_code_versions()
    assert list(before) == ["data", "data/store", "models", "pretrain"]
    (tmp_path / "data/store/reader.py").rename(tmp_path / "data/store/other.py")
    after = preflight.compute_code_versions()
    assert [name for name in before if before[name] != after[name]] == ["data/store"]


class Client:
    """A coordinator's store with the other processes' messages `said`, which answers nothing else."""

    def __init__(self, messages):
        self.messages = messages

    def key_value_set(self, key, value):
        self.messages[key] = value

    def blocking_key_value_get(self, key, milliseconds):
        import jax

        if key not in self.messages:
            raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED")
        return self.messages[key]


def fake_client(monkeypatch, processes, messages):
    monkeypatch.setattr("jax.process_count", lambda: processes)
    client = Client({key: json.dumps(value) for key, value in messages.items()})
    monkeypatch.setattr(cluster, "get_client", lambda: client)
    monkeypatch.setattr(cluster, "get_host_name", lambda process: f"node{process}")


def test_a_process_that_never_speaks_is_named(monkeypatch):
    fake_client(monkeypatch, 3, {"cloze/preflight/facts/0": {"host": "here"}})
    with pytest.raises(
        ConfigError,
        match=r"process 1 \(node1\), 2 \(node2\) of 3 has not come as far as the others within 25 s",
    ):
        exchange.exchange_values("facts", {"host": "here"}, 25)


def test_hosts_with_different_stores_are_named(monkeypatch, stores):
    mine, other = stores["bert"], stores["t5"]
    run = SimpleNamespace(data=SimpleNamespace(store=mine.path, on_corrupt="refuse"))
    host_facts = preflight.collect_source_facts(mine)
    sound = {"host": "node1 (process 1)", "damage": None, "left out": "no documents"}
    fake_client(
        monkeypatch,
        2,
        {
            "cloze/preflight/source/1": host_facts | {"host": "node1 (process 1)"},
            "cloze/preflight/sound/1": sound,
        },
    )
    assert preflight.preflight_source(run, mine) is mine
    with pytest.raises(
        ConfigError,
        match="do not agree: .* has data files.train/tokens.bin.crc32c [0-9a-f]{8}, 1 of 2 have [0-9a-f]{8} .*; .* has encoding",
    ):
        preflight.preflight_source(run, other)


def test_hosts_that_leave_out_other_documents_are_named(monkeypatch, stores):
    mine = stores["bert"]
    run, host_facts = (
        SimpleNamespace(data=SimpleNamespace(store=mine.path, on_corrupt="skip")),
        preflight.collect_source_facts(mine),
    )
    less = {
        "host": "node1 (process 1)",
        "damage": None,
        "left out": "2 of train documents (00c0ffee)",
    }
    fake_client(
        monkeypatch, 2, {"cloze/preflight/source/1": host_facts, "cloze/preflight/sound/1": less}
    )
    with pytest.raises(
        ConfigError, match=r"do not agree: node1 \(process 1\) has left out 2 of train documents"
    ):
        preflight.preflight_source(run, mine)


def test_a_damaged_store_is_reported_with_its_host(monkeypatch, stores):
    mine = stores["bert"]
    run, host_facts = (
        SimpleNamespace(data=SimpleNamespace(store=mine.path, on_corrupt="refuse")),
        preflight.collect_source_facts(mine),
    )
    damaged = {
        "host": "node1 (process 1)",
        "damage": "books/tokens.bin: crc32c 1",
        "left out": "no documents",
    }
    fake_client(
        monkeypatch, 2, {"cloze/preflight/source/1": host_facts, "cloze/preflight/sound/1": damaged}
    )
    with pytest.raises(ConfigError, match=r"^node1 \(process 1\): books/tokens.bin: crc32c 1$"):
        preflight.preflight_source(run, mine)
    fake_client(
        monkeypatch,
        2,
        {
            "cloze/preflight/source/1": host_facts,
            "cloze/preflight/sound/1": damaged | {"damage": None},
        },
    )

    def verify_once(store):
        raise ValueError("here it is damaged")

    monkeypatch.setattr(type(mine), "verify_checksums_once", verify_once)
    with pytest.raises(
        ConfigError,
        match=r"\(process 0\): here it is damaged; or leave the damaged documents out with data.on_corrupt=skip$",
    ):
        preflight.preflight_source(run, mine)


def test_a_workdir_that_cannot_be_written_is_reported_with_its_host(tmp_path):
    (tmp_path / "file").write_text("")
    assert preflight._write_probe(Workdir.open(tmp_path / "file")) is None
    note = preflight._write_probe(Workdir.open(tmp_path / "run"))
    host_facts = [
        {"host": "a (process 0)", "probe": note},
        {"host": "b (process 1)", "probe": None},
        {"host": "c (process 2)", "probe": ".preflight-2"},
    ]
    first, second = preflight._find_unseen_probes(Workdir.open(tmp_path / "run"), host_facts)
    assert (
        first == f"b (process 1) cannot write to {tmp_path / 'run'}"
        and "is another folder on c (process 2)" in second
    )


# ---- `local` itself ----------------------------------------------------------


def test_when_one_process_fails_the_others_are_stopped_and_its_status_is_reported(
    monkeypatch, capfd
):
    program = "import os, sys, time; i = int(os.environ['JAX_PROCESS_ID']); print('here', flush=True); i == 1 and sys.exit(7); time.sleep(60)"
    real = local.build_command
    monkeypatch.setattr(
        local,
        "build_command",
        lambda *args: real(*args) | {"args": [sys.executable, "-c", program]},
    )
    monkeypatch.setattr(local, "GRACE", 0.5)
    began = time.monotonic()
    ending = local.run_processes(3, 1, ["train"])
    assert (ending.status, ending.process, ending.is_restartable) == (7, 1, False)
    assert time.monotonic() - began < 20
    assert sorted(capfd.readouterr().out.splitlines()) == ["[1] here", "[2] here", "here"]


@pytest.mark.parametrize("words", [["0", "train"], ["2"], ["--devices", "0", "2", "train"]])
def test_local_reports_errors(capsys, words):
    assert main(["local", *words]) == 2
    assert "error: local" in capsys.readouterr().err


def test_one_that_is_done_waits_for_the_others(monkeypatch, root):
    """A process that ends slowly does not make the first leave, but a process that hangs at its end
    is not waited for.
    """
    program = (
        "import os, time\nfrom pretrain.processes import processes, watchdog\nprocesses.join_run()\nwatchdog.EXIT_LIMIT = 1.0\n"
        "time.sleep(3 * int(os.environ['JAX_PROCESS_ID']))\nprocesses.shutdown_cluster()\nwatchdog.exit_soon(0)"
    )
    real = local.build_command
    monkeypatch.setattr(
        local,
        "build_command",
        lambda *args: real(*args) | {"args": [sys.executable, "-c", program], "cwd": root},
    )
    assert local.run_processes(2, 1, ["train"]).status == 0
