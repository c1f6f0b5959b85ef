"""Objectives turn rows of token ids into batches: one file each, found by listing this folder.

`OBJECTIVES` is {name: class}. Each class can also be imported from this package.
"""

import importlib
import inspect
import pkgutil
from typing import Any

from data.objectives.objective import Objective


def find_objectives() -> dict[str, type[Objective]]:
    """Return {name: class} of the objectives in the files of this folder."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        members = vars(importlib.import_module(f"{__name__}.{module.name}")).values()
        for kind in members:
            if inspect.isclass(kind) and issubclass(kind, Objective) and "name" in vars(kind):
                found[kind.name] = kind
    return dict(sorted(found.items()))


OBJECTIVES = find_objectives()
CLASSES = {kind.__name__: kind for kind in OBJECTIVES.values()}


def __getattr__(name: str) -> Any:
    """Return the objective class of that name."""
    if name in CLASSES:
        return CLASSES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
