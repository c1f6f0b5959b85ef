"""Accelerators, with stand-ins for /dev, /proc and /sys: detection, the extra that they need, and
the refusal to train on the CPU.
"""

import configparser
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from pretrain.__main__ import main
from pretrain.host.extras import how_to_install
from pretrain.processes import accelerator_detection
from pretrain.processes.accelerator_detection import (
    Accelerators,
    choose_extra,
    describe_unused,
    find_accelerators,
)
from pretrain.training.fits import preflight
from tests.command import split_words

ROOT = pathlib.Path(__file__).parents[3]
# The kernel module's version files: the proprietary one, and the open one.
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 12.3.0\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (builder@host)  Wed Aug  6 2025\n"
TPU = {f"dev/accel{i}": "" for i in range(4)}
TPU_V5 = {
    **{f"dev/vfio/{name}": "" for name in ("0", "1", "10", "vfio")},
    **{f"sys/bus/pci/devices/0000:00:0{i}.0/{name}": text for i in range(3) for name, text in (("vendor", "0x1ae0\n"), ("class", "0x088000\n"))},
}  # fmt: skip
NETWORK_CARD = {
    "dev/vfio/7": "",
    "sys/bus/pci/devices/0000:00:05.0/vendor": "0x15b3\n",
    "sys/bus/pci/devices/0000:00:05.0/class": "0x020000\n",
}
OTHER_GPU = {
    "dev/vfio/8": "",
    "sys/bus/pci/devices/0000:00:07.0/vendor": "0x1002\n",
    "sys/bus/pci/devices/0000:00:07.0/class": "0x030000\n",
}
GVNIC = {
    "sys/bus/pci/devices/0000:00:06.0/vendor": "0x1ae0\n",
    "sys/bus/pci/devices/0000:00:06.0/class": "0x020000\n",
}
GPU = {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "", "dev/nvidia-uvm": ""}
IDLE_GPU = {"proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: A\n"}


def make_driver_file(version, text=CLOSED):
    return {"proc/driver/nvidia/version": text.format(version)}


@pytest.fixture
def machine(tmp_path):
    """Return machine(files): a folder with stand-ins for /dev, /proc and /sys."""

    def make_machine(files):
        for name, text in files.items():
            path = tmp_path / "machine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "machine").mkdir(exist_ok=True)
        return tmp_path / "machine"

    return make_machine


@pytest.mark.parametrize(
    ("files", "expected", "extra"),
    [
        ({}, [], ""),
        (
            {
                "dev/accel/accel0": "",
                "dev/accelerometer": "",
                "dev/nvidiactl": "",
                "dev/nvidia-caps/x": "",
            },
            [],
            "",
        ),  # of other vendors, or not a device
        (TPU, ["4 TPU chips (/dev/accel0, ...)"], "tpu"),
        (TPU_V5, ["3 TPU chips (/dev/vfio/0, ...)"], "tpu"),
        (NETWORK_CARD | OTHER_GPU, [], ""),  # passed through to a guest
        (NETWORK_CARD | GVNIC, [], ""),  # a card of Google's that is not a TPU
        (make_driver_file("580.65.06"), [], ""),  # without a GPU
        (
            GPU | make_driver_file("580.65.06", OPEN),
            ["2 NVIDIA GPUs (/dev/nvidia0, ...)"],
            "cuda13",
        ),
        (GPU | make_driver_file("610.10"), ["2 NVIDIA GPUs (/dev/nvidia0, ...)"], "cuda13"),
        (GPU | make_driver_file("535.104.05"), ["2 NVIDIA GPUs (/dev/nvidia0, ...)"], "cuda12"),
        (
            IDLE_GPU | make_driver_file("525.60.13"),
            ["1 NVIDIA GPU (/proc/driver/nvidia/gpus/0000:3b:00.0)"],
            "cuda12",
        ),
    ],
)
def test_accelerators_are_detected_with_the_extra_that_they_need(machine, files, expected, extra):
    found = find_accelerators(machine(files))
    assert [str(one) for one in found] == expected and choose_extra(found) == extra


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (TPU | GPU | make_driver_file("580.65.06"),
         r"this machine has 4 TPU chips .* and 2 NVIDIA GPUs .*set CLOZE_ACCELERATOR to tpu, cuda13, cuda12 or cpu"),
        (GPU, "2 NVIDIA GPUs .*: /proc/driver/nvidia/version does not show the driver's version: .*CLOZE_ACCELERATOR"),
        (GPU | make_driver_file("470.256.02"),
         "driver 470.256.02 is older than 525, the oldest for CUDA 12. Update the driver, or set JAX_PLATFORMS=cpu"),
    ],
)  # fmt: skip
def test_where_a_person_must_choose(machine, files, message):
    with pytest.raises(ValueError, match=message):
        choose_extra(find_accelerators(machine(files)))


def test_the_extras_have_the_range_of_jax():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    (core,) = [
        line for line in setup["options"]["install_requires"].split("\n") if line.startswith("jax>")
    ]
    extras = setup["options.extras_require"]
    for name in (*accelerator_detection.EXTRAS, "cpu"):
        kind = "" if name == "cpu" else f"[{name}]"
        assert extras[name].strip().partition(";")[0] == core.replace("jax", f"jax{kind}"), name
    assert all(
        line.replace("[tpu]", "").startswith(core)
        for name in extras
        for line in extras[name].split("\n")
        if line.startswith("jax[tpu]")
    )


# ---- train ---------------------------------------------------------------------


def test_a_requested_cpu_is_no_error():
    found = [Accelerators("TPU", 4, ("/dev/accel0",))]
    assert describe_unused(found, "tpu", {}) == "" and describe_unused([], "cpu", {}) == ""
    assert describe_unused(found, "cpu", {"JAX_PLATFORMS": "cpu"}) == ""
    text = describe_unused(found, "cpu", {"JAX_PLATFORMS": "tpu,cpu"})
    assert text.startswith("this machine has 4 TPU chips (/dev/accel0), but JAX runs on the cpu.")
    assert how_to_install("tpu") in text and "Set JAX_PLATFORMS=cpu to use the CPU" in text


def use_machine(monkeypatch, root):
    monkeypatch.setattr(preflight, "find_accelerators", lambda: find_accelerators(root))


def test_training_on_the_cpu_beside_a_tpu_is_refused_unless_requested(
    machine, configs, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    use_machine(monkeypatch, machine(TPU))
    words = split_words(
        f"train {configs['bert']} --workdir {tmp_path / 'run'} train.steps=1 evaluate.every=0"
    )
    assert main(words) == 2
    captured = capsys.readouterr()
    assert (
        "error: this machine has 4 TPU chips (/dev/accel0, ...), but JAX runs on the cpu"
        in captured.err
    )
    assert (
        how_to_install("tpu") in captured.err
        and "step 1" not in captured.out
        and not (tmp_path / "run").exists()
    )
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    preflight.preflight_accelerators()


def test_fine_tuning_is_refused_before_the_pretrained_run_is_opened(
    machine, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    use_machine(monkeypatch, machine(GPU | make_driver_file("580.65.06")))
    (tmp_path / "train.jsonl").write_text(
        "".join(f'{{"text": "text {i}", "label": "{i % 2}"}}\n' for i in range(40))
    )
    words = [
        *split_words("finetune --from nowhere --task classification --train"),
        tmp_path / "train.jsonl",
        "--workdir",
        tmp_path / "run",
    ]
    assert main([str(word) for word in words]) == 2
    assert (
        "error: this machine has 2 NVIDIA GPUs (/dev/nvidia0, ...), but JAX runs on the cpu"
        in capsys.readouterr().err
    )


def test_every_host_hears_of_the_one_that_would_train_on_its_cpu(monkeypatch):
    class Client:
        def __init__(self):
            self.store = {}

        def key_value_set(self, key, value):
            self.store[key] = value
            self.store[key[:-1] + "1"] = (
                '{"host": "b (process 1)", "unused": "this machine has 4 TPU chips"}'
            )

        def blocking_key_value_get(self, key, milliseconds):
            return self.store[key]

    use_machine(monkeypatch, pathlib.Path("/nowhere"))
    client = Client()
    monkeypatch.setattr("jax.process_count", lambda: 2)
    monkeypatch.setattr(preflight.processes, "get_client", lambda: client)
    with pytest.raises(ValueError, match=r"^b \(process 1\): this machine has 4 TPU chips$"):
        preflight.preflight_accelerators()


# ---- launch.sh -----------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """Make a checkout whose .venv has a stand-in for Python, which records in `log` what is
    installed and run.
    """
    folder = tmp_path / "check out"
    for name in (
        "launch.sh",
        "setup.cfg",
        "constraints.txt",
        "pretrain/__init__.py",
        "pretrain/host/command.py",
        "pretrain/processes/accelerator_detection.py",
        "pretrain/host/extras.py",
        "pretrain/host/terminal.py",
        "pretrain/host/lost_output.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\ncase "$*" in "-m pip --version") exit 0 ;; *version_info*) echo "${{STANDIN_VERSION:-3.11}}"; exit 0 ;; *pretrain.processes.accelerator_detection*) exec "{sys.executable}" "$@" ;; esac\nprintf "%s\\n" "$*" >> "{folder}/log"\n'
    )
    python.chmod(0o755)
    return folder


def run_launcher(checkout, root, *words, without="", **environ):
    """Run launch.sh on a stand-in machine; return (exit status, recorded calls, stderr)."""
    (checkout / "log").write_text("")
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAX_PLATFORMS", "CLOZE_ACCELERATOR", "CLOZE_CONSTRAINTS", "CLOZE_PYTHON")
        and name != without
    }
    done = subprocess.run(
        ["bash", checkout / "launch.sh", *words],
        env=clean | environ | {"CLOZE_DEVICE_ROOT": str(root)},
        capture_output=True,
        text=True,
    )
    return done.returncode, (checkout / "log").read_text().splitlines(), done.stderr


PIP = "-m pip install --quiet --disable-pip-version-check "
INSTALL = PIP + "--constraint constraints.txt -e "
UPGRADE = "--upgrade --upgrade-strategy eager "


@pytest.mark.parametrize(
    ("files", "environ", "extras"),
    [
        ({}, {}, ".[report,tfdata]"),
        (NETWORK_CARD, {}, ".[report,tfdata]"),
        (TPU, {}, ".[report,tfdata,tpu]"),
        (TPU_V5, {}, ".[report,tfdata,tpu]"),
        (GPU | make_driver_file("580.65.06"), {}, ".[report,tfdata,cuda13]"),
        (GPU | make_driver_file("535.104.05"), {}, ".[report,tfdata,cuda12]"),
        (TPU, {"JAX_PLATFORMS": "cpu"}, ".[report,tfdata]"),
        (TPU, {"JAX_PLATFORMS": "tpu,cpu"}, ".[report,tfdata,tpu]"),
        (TPU | GPU, {"CLOZE_ACCELERATOR": "cuda12"}, ".[report,tfdata,cuda12]"),
        (GPU, {"CLOZE_ACCELERATOR": "cpu"}, ".[report,tfdata]"),
    ],
)
def test_launch_installs_what_the_machine_needs(machine, checkout, files, environ, extras):
    root = machine(files)
    assert run_launcher(checkout, root, "doctor", **environ) == (
        0,
        [INSTALL + extras, "-m pretrain doctor"],
        "",
    )
    assert run_launcher(checkout, root, "doctor", **environ) == (
        0,
        ["-m pretrain doctor"],
        "",
    )  # packages are installed once only


def replace_plugin(checkout, old, new):
    """Do what the stand-in for pip does not: the packages of one CUDA version replace the other's."""
    packages = checkout / ".venv/lib/python3.11/site-packages"
    shutil.rmtree(packages / f"jax_{old}_plugin-0.10.2.dist-info", ignore_errors=True)
    (packages / f"jax_{new}_plugin-0.10.2.dist-info").mkdir(parents=True)


def test_launch_installs_again_for_another_accelerator(machine, checkout, tmp_path):
    assert run_launcher(checkout, machine({}), "doctor")[1][0] == INSTALL + ".[report,tfdata]"
    assert (
        run_launcher(checkout, machine(GPU | make_driver_file("535.104.05")), "doctor")[1][0]
        == INSTALL + ".[report,tfdata,cuda12]"
    )
    replace_plugin(checkout, "cuda13", "cuda12")
    newer = [
        "-m pip uninstall --quiet --yes jax-cuda12-plugin jax-cuda12-pjrt",
        INSTALL + ".[report,tfdata,cuda13]",
        "-m pretrain doctor",
    ]
    assert run_launcher(checkout, machine(make_driver_file("580.65.06")), "doctor")[1] == newer
    replace_plugin(checkout, "cuda12", "cuda13")
    older = [
        "-m pip uninstall --quiet --yes jax-cuda13-plugin jax-cuda13-pjrt",
        INSTALL + ".[report,tfdata,cuda12]",
        "-m pretrain doctor",
    ]
    assert run_launcher(checkout, machine(make_driver_file("535.104.05")), "doctor")[1] == older
    replace_plugin(checkout, "cuda13", "cuda12")
    assert run_launcher(checkout, machine({}), "test", "-x")[1] == [
        INSTALL + ".[test,tfdata,cuda12]",
        "-m pytest -x",
    ]


def test_launch_installs_again_for_other_versions(machine, checkout):
    root, lines = machine({}), checkout / "constraints.txt"
    assert run_launcher(checkout, root, "doctor")[1] == [
        INSTALL + ".[report,tfdata]",
        "-m pretrain doctor",
    ]
    lines.write_text(lines.read_text() + "another==1\n")
    assert run_launcher(checkout, root, "doctor")[1][0] == INSTALL + ".[report,tfdata]"
    newest = run_launcher(checkout, root, "doctor", CLOZE_CONSTRAINTS="")
    assert newest == (0, [PIP + UPGRADE + "-e .[report,tfdata]", "-m pretrain doctor"], "")
    more = run_launcher(checkout, root, "test", CLOZE_CONSTRAINTS="")[1]
    assert more[0] == PIP + "-e .[test,tfdata]"  # next to the newest ones
    mine = checkout / "my versions.txt"
    mine.write_text("jax==0.10.2\n")
    called = run_launcher(checkout, root, "doctor", CLOZE_CONSTRAINTS=str(mine))[1]
    assert called[0] == f"{PIP}--constraint {mine} -e .[report,tfdata]"
    assert len(list((checkout / ".venv").glob("installed-*"))) == 1
    # The versions of constraints.txt were replaced, so that they are installed again.
    assert run_launcher(checkout, root, "doctor")[1][0] == INSTALL + ".[report,tfdata]"
    assert run_launcher(checkout, root, "doctor")[1] == ["-m pretrain doctor"]
    mine.unlink()
    status, called, error = run_launcher(checkout, root, "doctor", CLOZE_CONSTRAINTS=str(mine))
    assert status == 2 and called == [] and f"CLOZE_CONSTRAINTS={mine}: no such file" in error


def test_launch_uninstalls_the_checkout_under_its_earlier_name(machine, checkout):
    packages = checkout / ".venv/lib/python3.11/site-packages"
    (packages / "cloze-9.9.dist-info").mkdir(parents=True)  # from the index: another project's
    (packages / "cloze_pretrain-0.2.0.dist-info").mkdir()
    (packages / "cloze_pretrain-0.2.0.dist-info" / "direct_url.json").touch()
    root = machine({})
    assert run_launcher(checkout, root, "doctor")[1][0] == INSTALL + ".[report,tfdata]"
    (packages / "cloze-9.9.dist-info" / "direct_url.json").touch()
    assert run_launcher(checkout, root, "test", "-x")[1] == [
        "-m pip uninstall --quiet --yes cloze",
        INSTALL + ".[test,tfdata]",
        "-m pytest -x",
    ]


@pytest.mark.parametrize("leftover", ["", "bin", "lib"])
def test_launch_completes_an_environment_without_pip(machine, checkout, tmp_path, leftover):
    """As an interrupted first call leaves it. CLOZE_PYTHON may have a blank, and HOME may be unset."""
    whole, python = checkout / ".venv", tmp_path / "my py" / "python"
    python.parent.mkdir()
    complete = f'{{ rm -rf .venv; cp -r whole .venv; echo "made: $*" >> "{checkout}/log"; }}\n'
    python.write_text(f'#!/bin/sh\n[ "$1 $2" != "-m venv" ] || {complete}')
    python.chmod(0o755)
    whole.rename(checkout / "whole")
    whole.mkdir()
    if leftover == "bin":  # a Python, and no pip yet
        (whole / "bin").mkdir()
        (whole / "bin" / "python").write_text(f'#!/bin/sh\n[ "$*" = "-m ensurepip" ] && {complete}')
        (whole / "bin" / "python").chmod(0o755)
    elif leftover:
        (whole / "lib").mkdir()
    environ = {"CLOZE_PYTHON": str(python)}
    status, calls, error = run_launcher(checkout, machine({}), "doctor", without="HOME", **environ)
    assert (status, error) == (0, "")
    assert f"made: -m {'ensurepip' if leftover == 'bin' else 'venv .venv'}" in calls
    assert calls[-2:] == [INSTALL + ".[report,tfdata]", "-m pretrain doctor"]
    again = run_launcher(checkout, machine({}), "doctor", without="HOME", **environ)
    assert again == (0, ["-m pretrain doctor"], "")


def test_launch_leaves_an_environment_that_it_cannot_complete(machine, checkout):
    """Such as a tool's that installs without pip."""
    python, own = checkout / ".venv" / "bin" / "python", checkout / ".venv" / "own"
    python.write_text("#!/bin/sh\nexit 1\n")
    own.touch()
    status, _, error = run_launcher(checkout, machine({}), "doctor")
    assert status == 2 and own.exists()
    assert error.startswith("error: ") and ".venv has no pip: remove this folder" in error


@pytest.mark.parametrize(
    ("files", "environ", "message"),
    [
        (TPU | GPU | make_driver_file("580.65.06"), {},
         "error: this machine has 4 TPU chips (/dev/accel0, ...) and 2 NVIDIA GPUs (/dev/nvidia0, ...): "),
        (GPU, {}, "error: 2 NVIDIA GPUs (/dev/nvidia0, ...): /proc/driver/nvidia/version does not show"),
        (GPU | make_driver_file("470.256.02"), {},
         "error: 2 NVIDIA GPUs (/dev/nvidia0, ...): driver 470.256.02 is older"),
        ({}, {"CLOZE_ACCELERATOR": "gpu"}, "error: CLOZE_ACCELERATOR=gpu: expected one of tpu, cuda13, cuda12, cpu"),
    ],
)  # fmt: skip
def test_launch_stops_with_one_line_where_a_person_must_choose(
    machine, checkout, files, environ, message
):
    status, called, error = run_launcher(checkout, machine(files), "doctor", **environ)
    assert status == 2 and called == [] and error.startswith(message) and error.count("\n") == 1


# ---- an environment where Python lacks a part --------------------------------------

# A Python without `venv`, which records what it is asked for. What makes an environment makes the
# stand-in next to it.
BARE_PYTHON = """#!/bin/sh
case "$*" in
  "-c import ensurepip, venv") exit 1 ;;
  *"-m pip install"*) [ -z "$NO_PIP" ] || { echo "No module named pip" >&2; exit 1; } ;;
  "-m virtualenv"*) mkdir -p .venv/bin && cp "$0.made" .venv/bin/python ;;
  --version) echo Python 3.13.0 ;;
esac
case "$*" in "-m venv"* | "-m pip"* | "-m virtualenv"*) echo "$*" >> log ;; esac
"""


@pytest.fixture
def bare_python(checkout, tmp_path):
    """Return a folder with `python3`, to stand first on PATH; the checkout has no .venv."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").write_text(BARE_PYTHON)
    shutil.move(checkout / ".venv/bin/python", folder / "python3.made")
    shutil.rmtree(checkout / ".venv")
    for program in folder.iterdir():
        program.chmod(0o755)
    return folder


def launch_bare(checkout, machine, folder, **environ):
    path = f"{folder}:{os.environ['PATH']}"
    found = {"PATH": path, "CLOZE_PYTHON": str(folder / "python3")}
    return run_launcher(checkout, machine({}), "doctor", **found, **environ)


def test_a_python_without_venv_takes_virtualenv(machine, checkout, bare_python):
    (bare_python / "uv").write_text("#!/bin/sh\nexit 1\n")
    (bare_python / "uv").chmod(0o755)
    status, log, error = launch_bare(checkout, machine, bare_python)
    assert (status, error) == (0, "")
    assert "virtualenv>=20.26,<22" in log[0] and "--target" in log[0]
    assert log[1:] == [
        "-m virtualenv --quiet .venv",
        INSTALL + ".[report,tfdata]",
        "-m pretrain doctor",
    ]


def test_a_python_without_venv_takes_uv_where_there_is_one(machine, checkout, bare_python):
    (bare_python / "uv").write_text(
        f'#!/bin/sh\necho "uv $*" >> log; mkdir -p .venv/bin && cp "{bare_python}/python3.made" .venv/bin/python\n'
    )
    (bare_python / "uv").chmod(0o755)
    _, log, _ = launch_bare(checkout, machine, bare_python)
    assert log[0] == f"uv venv --quiet --seed --python {bare_python}/python3 .venv"
    assert log[1:] == [INSTALL + ".[report,tfdata]", "-m pretrain doctor"]


def test_a_python_that_can_make_no_environment_ends_with_a_remedy(machine, checkout, bare_python):
    (bare_python / "uv").write_text("#!/bin/sh\nmkdir .venv; exit 1\n")
    (bare_python / "uv").chmod(0o755)
    status, log, error = launch_bare(checkout, machine, bare_python, NO_PIP="1")
    assert status == 1 and log == [] and not (checkout / ".venv").exists()
    assert error.splitlines()[-1].endswith(
        "cannot make an environment: install its venv (Debian: apt install python3-venv) or uv"
    )
