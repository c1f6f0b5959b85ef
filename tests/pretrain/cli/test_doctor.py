"""`doctor` on a host of a pod: what it prints about its neighbours, chips and workdir, and when it
fails.
"""

import os

import pytest

from pretrain.__main__ import main
from pretrain.cli import doctor
from pretrain.host.extras import how_to_install
from pretrain.processes import processes
from pretrain.processes.accelerator_detection import Accelerators

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Remove the launchers' variables of the environment."""
    for name in list(os.environ):
        if name.startswith(
            (
                "SLURM_",
                "OMPI_",
                "JAX_COORD",
                "JAX_NUM_PROC",
                "JAX_PROC",
                "TPU_WORKER",
                "TPU_PROCESS",
                "MEGASCALE",
                "CLOZE_CLUSTER",
            )
        ):
            monkeypatch.delenv(name)


def test_a_host_that_is_alone_and_should_not_be_is_ill(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "find_accelerators", list)
    assert main(["doctor"]) == 0
    assert "this host is alone" in capsys.readouterr().out
    monkeypatch.setattr(processes, "join_cluster", lambda *words: None)
    assert main(["doctor", "--coordinator", "node1:7", "--processes", "4", "--process", "2"]) == 1
    output = capsys.readouterr().out
    assert (
        "several hosts: --coordinator, --processes, --process, process 2 of 4 (from 0), coordinator node1:7"
        in output
    )
    assert "but JAX joined 1" in output
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["doctor"]) == 1  # not started by srun
    assert "has room for 4 processes" in capsys.readouterr().err


def test_chips_that_jax_does_not_use_are_ill(monkeypatch, capsys):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(
        doctor,
        "find_accelerators",
        lambda: [Accelerators("TPU", 4, ("/dev/accel0", "/dev/accel1"))],
    )
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert (
        "this machine has 4 TPU chips (/dev/accel0, ...), but JAX runs on the cpu" in output
        and how_to_install("tpu") in output
    )
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # as requested
    assert main(["doctor"]) == 0


def test_a_workdir_that_cannot_be_written_is_ill(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "find_accelerators", list)
    (tmp_path / "file").touch()
    assert main(["doctor", "--workdir", str(tmp_path / "file" / "run")]) == 1
    assert "cannot be written" in capsys.readouterr().out
