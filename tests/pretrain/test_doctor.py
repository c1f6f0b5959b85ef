"""doctor on a host of a pod, and how a process joins the others: read from the environment, real or made up."""

import pytest

from pretrain import cluster
from pretrain.__main__ import main
from pretrain.verbs import doctor

FOUR = "t1v-n-0,t1v-n-1,t1v-n-2,t1v-n-3"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No variable of a launcher from outside."""
    for names in doctor.LAUNCHERS.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name in ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES", "TPU_WORKER_ID", "CLOZE_CLUSTER", "JAX_COORDINATOR_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, None),
        ({"TPU_WORKER_HOSTNAMES": FOUR, "TPU_WORKER_ID": "2"}, (3, 4, "TPU runtime")),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, (1, 1, "TPU runtime")),
        ({"TPU_WORKER_HOSTNAMES": FOUR}, (None, 4, "TPU runtime")),
        (
            {"TPU_WORKER_HOSTNAMES": FOUR, "TPU_WORKER_ID": "1", "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": "1"},
            (6, 8, "TPU runtime, 2 slices"),
        ),
        ({"SLURM_NTASKS": "16", "SLURM_PROCID": "15"}, (16, 16, "Slurm")),
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0", "SLURM_NTASKS": "1"}, (1, 2, "JAX")),
    ],
)
def test_the_environment_tells_of_neighbours(environ, told):
    assert doctor.neighbours(environ) == told


def test_chips_are_device_files(tmp_path):
    assert doctor.chips(tmp_path) == {}
    for name in ("accel0", "accel1", "vfio/0", "vfio/vfio", "nvidia0", "nvidia-caps", "nvidiactl", "accelerator"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert doctor.chips(tmp_path) == {"TPU": 3, "GPU": 1}


def test_a_host_that_is_alone_and_should_not_be_is_ill(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "chips", dict)
    assert main(["doctor"]) == 0
    assert "looks like" not in capsys.readouterr().out
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setattr(cluster, "start", lambda: None)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "this looks like host 1 of 4 (Slurm)" in said and "but JAX joined 1" in said


def test_chips_that_jax_does_not_use_are_ill(monkeypatch, capsys):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(doctor, "chips", lambda: {"TPU": 4})
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "4 TPU chips are in this machine" in said and "but JAX runs on the cpu: pip install 'jax[tpu]'" in said
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # asked for
    assert main(["doctor"]) == 0


def test_a_workdir_that_cannot_be_written_is_ill(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "chips", dict)
    (tmp_path / "file").touch()
    assert main(["doctor", "--workdir", str(tmp_path / "file" / "run")]) == 1
    assert "cannot be written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("environ", "joined"),
    [({}, []), ({"TPU_WORKER_HOSTNAMES": "localhost"}, []), ({"TPU_WORKER_HOSTNAMES": FOUR}, [()]), ({"CLOZE_CLUSTER": "tpu"}, [()])],
)
def test_who_joins_the_others(environ, joined, monkeypatch):
    calls = []
    monkeypatch.setattr("jax.distributed.initialize", lambda *words: calls.append(words))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    cluster.start()
    assert calls == joined
