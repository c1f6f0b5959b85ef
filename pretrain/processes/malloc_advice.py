"""Advice on glibc's malloc, which returns freed memory to the system after each step.

Returning the memory and requesting it again made a step of BERT-base on a CPU one sixth longer.
"""

import os
import platform
from collections.abc import Mapping

from pretrain.host.command import PREFIX


def format_malloc_advice(device: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a line of advice, or None if it does not apply.

    It applies to training on a CPU without the settings of glibc that launch.sh makes.

    device: JAX's platform, such as "cpu" or "tpu".
    """
    if (
        device != "cpu"
        or platform.libc_ver()[0] != "glibc"
        or "glibc.malloc" in environment.get("GLIBC_TUNABLES", "")
    ):
        return None
    setter = "a line of docs/quickstart.md" if PREFIX else "./launch.sh train ..."
    return (
        "glibc returns memory to the system after each step and requests it again; "
        f"{setter} sets GLIBC_TUNABLES so that it keeps the memory, which is faster"
    )
