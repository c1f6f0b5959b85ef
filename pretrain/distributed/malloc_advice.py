"""Whether glibc keeps the memory that a step frees: to give it back and take it again made a step of BERT-base on a CPU a sixth longer (LOG.md)."""

import os
import platform


def advice(device, environment=os.environ):
    """A line for whoever computes on a CPU without the settings that launch.sh gives to glibc, or None; device: "cpu", "tpu" ..."""
    if (
        device != "cpu"
        or platform.libc_ver()[0] != "glibc"
        or "glibc.malloc" in environment.get("GLIBC_TUNABLES", "")
    ):
        return None
    return "glibc gives memory back after each step and takes it again; ./launch.sh train ... sets GLIBC_TUNABLES so that it keeps it, which is faster"
