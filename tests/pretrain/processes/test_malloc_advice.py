"""A run on a CPU without launch.sh's settings prints advice; other runs do not."""

import pathlib
import platform
import re

import pytest

from pretrain.processes.malloc_advice import format_malloc_advice

SETTINGS = re.search(
    r"GLIBC_TUNABLES:-(.*?)}", pathlib.Path(__file__).parents[3].joinpath("launch.sh").read_text()
).group(1)


@pytest.mark.parametrize(
    ("device", "settings", "message"),
    [
        ("cpu", "", True),
        ("cpu", SETTINGS, False),
        ("cpu", "glibc.cpu.x=1", True),
        ("tpu", "", False),
    ],
)
def test_the_advice_is_for_cpus_without_the_settings(monkeypatch, device, settings, message):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    assert bool(format_malloc_advice(device, {"GLIBC_TUNABLES": settings})) == message


def test_another_libc_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert format_malloc_advice("cpu", {}) is None
