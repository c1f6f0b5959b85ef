"""Objectives turn rows of token ids into batches: one file each, found by looking into this folder.

`OBJECTIVES` is {name: class}; each class can be imported from here, too.
"""

import importlib
import inspect
import pkgutil
from typing import Any

from data.objectives.base import Objective


def find_objectives() -> dict[str, type[Objective]]:
    """Return {name: class} of the objectives that the files of this folder hold."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        held = vars(importlib.import_module(f"{__name__}.{module.name}")).values()
        for kind in held:
            if inspect.isclass(kind) and issubclass(kind, Objective) and "name" in vars(kind):
                found[kind.name] = kind
    return dict(sorted(found.items()))


OBJECTIVES = find_objectives()
CLASSES = {kind.__name__: kind for kind in OBJECTIVES.values()}


def __getattr__(name: str) -> Any:
    """Return the objective of that class name."""
    if name in CLASSES:
        return CLASSES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
