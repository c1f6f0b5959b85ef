"""Detection of the other processes in made-up environments: the table itself, JAX's own detection,
and clear errors.
"""

import os
import re
import socket
import time

import pytest

from pretrain.__main__ import main
from pretrain.cli import local
from pretrain.processes import processes
from pretrain.processes.cluster_detection import LAUNCHERS, Cluster, detect_cluster
from tests.command import split_words

THREE = {"JAX_COORDINATOR_ADDRESS": "node1:1234", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "2"}
STEP = {
    "SLURM_JOB_ID": "4103", "SLURM_STEP_NODELIST": "node[007-009,011],other", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x4)", "SLURM_JOB_NUM_NODES": "4",
}  # fmt: skip
BATCH = {  # in the script of sbatch --nodes=4, before any srun
    "SLURM_JOB_ID": "4103", "SLURM_JOB_NODELIST": "node[007-010]", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
    "SLURM_JOB_NUM_NODES": "4",
}  # fmt: skip
MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}  # fmt: skip
MPI6 = MPI | {
    "OMPI_MCA_orte_hnp_uri": "1314521088.0;tcp6://[fe80::b9b:ac5d:9cf0:b858,2620:10d:c083:150e::3000:2]:43370"
}
TPU = {"TPU_WORKER_HOSTNAMES": "localhost,host-1,host-2,host-3", "TPU_WORKER_ID": "3"}
SLICES = TPU | {
    "MEGASCALE_NUM_SLICES": "2",
    "MEGASCALE_SLICE_ID": "1",
    "MEGASCALE_COORDINATOR_ADDRESS": "localhost:8080",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Cluster("none")),
        (THREE, Cluster("jax", 4, 2, "node1:1234")),
        (THREE | STEP, Cluster("jax", 4, 2, "node1:1234")),
        (STEP, Cluster("slurm", 4, 2, "node007:61447")),
        (STEP | {"SLURM_STEP_NODELIST": "gpu-a.site,gpu-b.site"}, Cluster("slurm", 4, 2, "gpu-a.site:61447")),
        (STEP | {"JAX_COORDINATOR_PORT": "99"}, Cluster("slurm", 4, 2, "node007:99")),
        (STEP | {"JAX_COORDINATOR_ADDRESS": "10.0.0.7:99"}, Cluster("slurm", 4, 2, "10.0.0.7:99")),
        (STEP | {"CLOZE_CLUSTER": "none"}, Cluster("none")),
        (STEP | {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_JOB_NUM_NODES": "1"},
         Cluster("slurm", 1, 0, "node007:61447")),
        (STEP | MPI, Cluster("ompi", 8, 5, "10.96.0.1:62624", (1,))),
        (MPI6, Cluster("ompi", 8, 5, "[fe80::b9b:ac5d:9cf0:b858]:62880", (1,))),
        (TPU, Cluster("gke", 4, 3, "localhost:8482")),
        (SLICES, Cluster("gke", 8, 7, "localhost:8482")),
        (SLICES | {"TPU_WORKER_HOSTNAMES": "only", "TPU_WORKER_ID": "0"}, Cluster("gke", 2, 1, "localhost:8482")),
        ({"TPU_PROCESS_ADDRESSES": "a:1,b:1", "TPU_WORKER_HOSTNAMES": "a", "TPU_WORKER_ID": "1"}, Cluster("gke", 2, 1, "a:8482")),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, Cluster("none")),
        ({"CLOZE_CLUSTER": "tpu"}, Cluster("tpu", None)),
    ],
    ids=lambda value: None if isinstance(value, dict) else value.name,
)  # fmt: skip
def test_processes_are_detected_from_the_environment(environ, expected):
    assert detect_cluster(environ) == expected


@pytest.mark.parametrize(
    ("kind", "environ"),
    [
        ("OmpiCluster", MPI),
        ("OmpiCluster", MPI6),
        ("SlurmCluster", STEP),
        ("GkeTpuCluster", TPU),
        ("GkeTpuCluster", SLICES),
    ],
)
def test_jax_would_find_the_same(kind, environ, monkeypatch):
    """Where both have an answer. Not for GPUs: JAX assigns one per process. JAX writes IPv6 without
    the brackets that gRPC needs.
    """
    from jax._src import clusters

    monkeypatch.setattr(
        os,
        "environ",
        {"MEGASCALE_COORDINATOR_ADDRESS": "", "MEGASCALE_NUM_SLICES": "", "MEGASCALE_SLICE_ID": ""}
        | environ,
    )
    theirs, ours = getattr(clusters, kind), detect_cluster(environ)
    coordinator = theirs.get_coordinator_address(timeout_secs=5, override_coordinator_port=None)
    assert (theirs.get_process_count(), theirs.get_process_id(), coordinator) == (
        ours.num_processes, ours.process_index, ours.coordinator.replace("[", "").replace("]", "")
    )  # fmt: skip


@pytest.mark.parametrize(
    "environ",
    [
        BATCH,
        BATCH | {"SLURM_NTASKS": ""},  # sbatch --nodes=4 alone
        STEP
        | {
            "SLURM_STEP_NUM_TASKS": "1",
            "SLURM_PROCID": "0",
            "SLURM_STEP_TASKS_PER_NODE": "1",
        },  # the shell of salloc
    ],
)
def test_a_job_without_srun_runs_alone_and_reports_it(environ):
    found = detect_cluster(environ)
    assert (
        found.num_processes == 1
        and "has room for 4 processes, but `srun` did not start this one" in found.note
    )
    one = {
        "SLURM_NTASKS": "1",
        "SLURM_STEP_NUM_TASKS": "1",
        "SLURM_PROCID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "1",
    }
    assert detect_cluster(STEP | one).note == ""  # srun --ntasks=1: as requested


EIGHT = {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "SLURM_GPUS_ON_NODE": "8"}


@pytest.mark.parametrize(
    ("tasks", "local", "seen", "devices"),
    [
        ("1(x4)", "0", EIGHT, None),  # one task drives all of them; JAX would use the first only
        ("8(x4)", "5", EIGHT, (5,)),
        ("8,8,2,8", "1", EIGHT, (4, 5, 6, 7)),  # this is node 2
        ("2(x4)", "0", EIGHT, (0, 1, 2, 3)),
        (
            "2(x4)",
            "1",
            {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "8"},
            None,
        ),  # --gpus-per-task=4: each process sees its own
        ("4(x4)", "3", {"CUDA_VISIBLE_DEVICES": "3"}, None),
        ("2(x4)", "1", {"ROCR_VISIBLE_DEVICES": "0,1"}, (1,)),
        ("2(x4)", "1", EIGHT | {"JAX_LOCAL_DEVICE_IDS": "7"}, None),
        ("2(x4)", "1", {}, (1,)),  # nothing is detected
    ],
)
def test_a_task_gets_its_share_of_the_gpus(tasks, local, seen, devices):
    assert (
        detect_cluster(
            STEP | {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_LOCALID": local} | seen
        ).devices
        == devices
    )


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"JAX_NUM_PROCESSES": "2"}, "JAX's variables: needs .* missing: JAX_COORDINATOR_ADDRESS, JAX_PROCESS_ID"),
        ({"JAX_COORDINATOR_ADDRESS": "node1:7"},
         "JAX's variables: needs .* missing: JAX_NUM_PROCESSES, JAX_PROCESS_ID"),
        (THREE | {"JAX_PROCESS_ID": "4"},
         "JAX's variables: process 4 of 4: there is at least one process, and processes are numbered from 0"),
        (THREE | {"JAX_PROCESS_ID": "-1"}, "JAX_PROCESS_ID='-1': expected a number of 0 or more"),
        (THREE | {"JAX_NUM_PROCESSES": "four"}, "JAX_NUM_PROCESSES='four': expected a number"),
        (THREE | {"JAX_COORDINATOR_ADDRESS": "node1"}, "the coordinator 'node1' is not host:port"),
        (THREE | {"JAX_COORDINATOR_ADDRESS": "node1:99999"}, "the coordinator 'node1:99999' is not host:port"),
        (STEP | {"SLURM_PROCID": "9"}, "Slurm: process 9 of 4"),
        ({"CLOZE_CLUSTER": "slurm", "SLURM_JOB_ID": "1"}, "Slurm: needs .* missing: SLURM_STEP_NODELIST, SLURM_NTASKS"),
        ({"CLOZE_CLUSTER": "k8s"}, "CLOZE_CLUSTER=k8s: expected one of none, jax, ompi, slurm, gke, tpu"),
        (STEP | EIGHT | {"SLURM_STEP_TASKS_PER_NODE": "3(x4)"}, "3 processes of this host see 8 GPUs"),
        (STEP | EIGHT | {"SLURM_STEP_TASKS_PER_NODE": "16(x4)"}, "16 processes of this host see 8 GPUs"),
        ({name: MPI[name] for name in MPI if name.startswith("OMPI_COMM")},
         "does not give the address of process 0: use mpirun -x JAX_COORDINATOR_ADDRESS"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "missing: TPU_WORKER_ID"),
        ({"CLOZE_CLUSTER": "gke", "TPU_WORKER_ID": "0"}, "missing: TPU_WORKER_HOSTNAMES"),
        (TPU | {"MEGASCALE_NUM_SLICES": "2"}, "2 slices; missing: MEGASCALE_SLICE_ID, MEGASCALE_COORDINATOR_ADDRESS"),
    ],
)  # fmt: skip
def test_half_an_environment_is_an_error(environ, message):
    with pytest.raises(ValueError, match=message):
        detect_cluster(environ)


def test_flags_go_before_the_environment_and_are_three():
    found = detect_cluster(STEP, ("node1:7", 3, 1))
    assert found == Cluster("flags", 3, 1, "node1:7") and "--coordinator" in str(found)
    with pytest.raises(ValueError, match="must be given together; missing: --processes, --process"):
        detect_cluster(STEP, ("node1:7", None, None))
    with pytest.raises(ValueError, match="process 3 of 3"):
        detect_cluster({}, ("node1:7", 3, 3))


def test_a_process_prints_its_number():
    assert str(detect_cluster(STEP | EIGHT | {"SLURM_STEP_TASKS_PER_NODE": "8(x4)"})) == (
        "Slurm, process 2 of 4 (from 0), coordinator node007:61447, GPU 0 of the visible ones"
    )


# ---- joining -----------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_coordinator_that_cannot_be_reached_is_named(monkeypatch, capsys):
    monkeypatch.setattr(processes, "JOIN_TIMEOUT", 0.3)
    address, began = f"127.0.0.1:{free_port()}", time.monotonic()
    words = split_words(f"evaluate --workdir x --coordinator {address} --processes 2 --process 1")
    assert main(words) == 2 and time.monotonic() - began < 20
    errors = capsys.readouterr().err
    assert (
        f"coordinator {address}: the coordinator does not answer within 0.3 s (Connection refused)"
        in errors
    )
    assert main([*words[:4], "no-such-host.invalid:99", *words[5:]]) == 2
    assert (
        "coordinator no-such-host.invalid:99: the coordinator does not answer"
        in capsys.readouterr().err
    )


def test_a_port_that_is_taken_is_named(capsys):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert (
            main(
                split_words(
                    f"evaluate --workdir x --coordinator {address} --processes 2 --process 0"
                )
            )
            == 2
        )
    assert (
        f"coordinator {address}: its port cannot be opened here: Address already in use"
        in capsys.readouterr().err
    )


def test_processes_that_do_not_come_together_are_an_error(monkeypatch):
    monkeypatch.setattr("jax.distributed.initialize", lambda **words: time.sleep(5))
    with pytest.raises(ValueError, match="process 0 of 2 .*not all processes joined within 0.2 s"):
        processes.join_cluster(Cluster("flags", 2, 0, f"127.0.0.1:{free_port()}"), 0.2)


@pytest.mark.parametrize(
    ("environ", "joined"),
    [
        ({}, []),
        ({"CLOZE_CLUSTER": "slurm", **STEP, "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, []),
        (BATCH, []),
        ({"CLOZE_CLUSTER": "tpu"}, [{}]),
        (SLICES,
         [{"coordinator_address": "localhost:8482", "num_processes": 8, "process_id": 7, "local_device_ids": None}]),
    ],
)  # fmt: skip
def test_who_joins_the_others(environ, joined, monkeypatch):
    calls = []

    class Client:
        def key_value_set(self, key, value):
            assert key == "cloze/host/0" and value == socket.gethostname()

    monkeypatch.setattr(os, "environ", environ)
    monkeypatch.setattr("jax.distributed.initialize", lambda **words: calls.append(words))
    monkeypatch.setattr(processes, "get_client", Client)
    monkeypatch.setattr(processes, "_wait_for_coordinator", lambda *words: None)
    monkeypatch.setattr(processes, "_bind_gloo_to_host", lambda host: None)  # JAX already runs here
    monkeypatch.setattr(processes, "_joined", False)
    for _ in range(2):
        processes.join_run()  # the second time it does nothing: a program may train twice
    for call in calls:
        assert call.pop("initialization_timeout") > processes.JOIN_TIMEOUT
        assert call.pop("cluster_detection_method", "deactivate") == "deactivate"
    assert calls == joined


def test_the_page_describes_every_row(root):
    page = (root / "docs" / "processes.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) >= LAUNCHERS.keys() | {"none"}


@pytest.mark.parametrize(
    ("coordinator", "expected"),
    [
        ("127.0.0.1:7", "127.0.0.1:7"),
        ("127.0.0.9:7", "127.0.0.9:7"),
        ("localhost:7", "127.0.0.1:7"),
        ("[::1]:7", "[::1]:7"),
        ("10.0.0.7:7", "[::]:7"),
        ("node1:7", "[::]:7"),
        ("[fe80::b9b:ac5d]:7", "[::]:7"),
    ],
)
def test_a_coordinator_on_a_loopback_address_listens_there_only(coordinator, expected, monkeypatch):
    monkeypatch.delenv("JAX_COORDINATOR_BIND_ADDRESS", raising=False)
    assert processes.choose_bind_address(coordinator) == expected
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "10.0.0.7:99")
    assert processes.choose_bind_address(coordinator) == "10.0.0.7:99"


def test_a_local_run_ignores_the_address_of_another(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "0.0.0.0:99")
    assert "JAX_COORDINATOR_BIND_ADDRESS" not in local.build_command(0, 2, 1, 7, ["train"])["env"]
