"""How a verb runs in a process of its own: its words and its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from pretrain.host.command import PACKAGE, PREFIX
from pretrain.host.hiding import ROOT
from pretrain.processes.process_identity import PARENT_VARIABLE


def make_words(argv: Sequence[str]) -> list[str]:
    """Return the words of a command that runs a verb. A json.py in its folder is not executed."""
    return [sys.executable, "-P", "-m", PACKAGE, *argv]


def make_environment() -> dict[str, str]:
    """Return the environment of a process that prints at once, and ends when this one does."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1", PARENT_VARIABLE: str(os.getpid())}
    if not PREFIX:  # a checkout, whose packages may be importable by its folder alone
        paths = (str(ROOT), environment.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environment
