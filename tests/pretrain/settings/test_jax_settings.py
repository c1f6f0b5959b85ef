"""Settings of JAX with which no command works are refused in one line, and `doctor` names them."""

import os
import subprocess
import sys

import jax
import pytest

from pretrain.settings import jax_settings
from pretrain.settings.jax_settings import check_jax_settings, explain_jax_error, list_refused
from pretrain.settings.overrides import ConfigError


@pytest.fixture
def not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_ENABLE_X64", "1"),
        ("JAX_ENABLE_X64", "True"),
        ("JAX_TRANSFER_GUARD", "disallow"),
        ("JAX_TRANSFER_GUARD_HOST_TO_DEVICE", "disallow_explicit"),
        ("JAX_DEFAULT_PRNG_IMPL", "rbg"),
        ("JAX_DEFAULT_PRNG_IMPL", "unsafe_rbg"),
        ("JAX_THREEFRY_PARTITIONABLE", "false"),
        ("JAX_THREEFRY_PARTITIONABLE", "0"),
    ],
)
def test_the_environment_is_checked_before_jax_is_imported(not_imported, name, value):
    with pytest.raises(ConfigError, match=f"^{name}={value} .*: unset {name}$"):
        check_jax_settings({name: value, "JAX_PLATFORMS": "cpu"})


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"JAX_ENABLE_X64": "0"},
        {"JAX_ENABLE_X64": "false", "JAX_TRANSFER_GUARD": "log"},
        {"JAX_PLATFORMS": "cpu", "JAX_DEBUG_NANS": "1"},
        {"JAX_DEFAULT_PRNG_IMPL": "threefry2x32", "JAX_THREEFRY_PARTITIONABLE": "1"},
    ],
)
def test_other_settings_pass(not_imported, environ):
    check_jax_settings(environ)


def test_where_jax_is_imported_its_own_configuration_counts():
    assert not [*list_refused({"JAX_ENABLE_X64": "1"})]  # JAX has not read this
    with jax.enable_x64(True):
        (line,) = list_refused({})
    assert line.startswith("jax.config.jax_enable_x64=True ")
    assert line.endswith('jax.config.update("jax_enable_x64", False)')


@pytest.mark.parametrize(
    ("name", "value", "sound"),
    [
        ("jax_default_prng_impl", "rbg", "'threefry2x32'"),
        ("jax_threefry_partitionable", False, "True"),
    ],
)
def test_another_generator_of_random_numbers_is_refused(name, value, sound):
    """It would make another model of the same seed."""
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        (line,) = list_refused({})
    finally:
        jax.config.update(name, before)
    assert line.startswith(f"jax.config.{name}={value} makes another model of the same seed")
    assert line.endswith(f'jax.config.update("{name}", {sound})')


def test_each_setting_is_one_of_jax():
    for name in jax_settings.REFUSED:
        assert hasattr(jax.config, name)


def test_errors_of_jax_about_its_settings_become_a_line():
    error = ValueError('Invalid value "some" for JAX flag jax_num_cpu_devices')
    assert explain_jax_error(error).startswith("JAX_NUM_CPU_DEVICES=some: ")
    error = ValueError("invalid truth value 'maybe' for environment 'JAX_ENABLE_X64'")
    assert explain_jax_error(error).startswith("JAX_ENABLE_X64=maybe: ")
    error = RuntimeError("Unable to initialize backend 'cuda': Backend 'cuda' is not in the list")
    line = explain_jax_error(error, {"JAX_PLATFORMS": "cuda"})
    assert line.startswith("JAX_PLATFORMS=cuda: ") and "unset JAX_PLATFORMS" in line
    assert explain_jax_error(ValueError("an invalid value")) == ""
    assert explain_jax_error(RuntimeError("INTERNAL: something else")) == ""


# ---- the public command -------------------------------------------------------


def run_verb(root, environ, *words):
    return subprocess.run(
        [sys.executable, "-m", "pretrain", *map(str, words)],
        cwd=root,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "environ", [{"JAX_ENABLE_X64": "1"}, {"JAX_PLATFORMS": "bogus"}, {"JAX_NUM_CPU_DEVICES": "x"}]
)
def test_the_command_ends_with_one_line(root, tmp_path, environ):
    ((name, value),) = environ.items()
    workdir = tmp_path / "run"
    done = run_verb(root, environ, "train", "bert_tiny", "--workdir", workdir)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"error: {name}={value}") and done.stderr.count("\n") == 1
    assert not workdir.exists()


@pytest.mark.slow
def test_doctor_knows(root):
    environ = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "bogus"}
    done = run_verb(root, environ, "doctor")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    for name, value in environ.items():
        assert [line for line in lines if line.startswith(f"{name}={value}")]
