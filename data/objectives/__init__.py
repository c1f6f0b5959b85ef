"""Objectives turn rows of token ids into batches: one file each, found by listing this folder.

`OBJECTIVES` is {name: class}. Each class can also be imported from this package.
"""

import importlib
import inspect
from typing import Any

from data.members import FolderMembers
from data.objectives.objective import Objective


def load_objective(file: str) -> type[Objective] | None:
    """Return the objective in a file of this folder; None if it has none."""
    module = importlib.import_module(f"{__name__}.{file}")
    for kind in vars(module).values():
        if (
            inspect.isclass(kind)
            and kind.__module__ == module.__name__
            and issubclass(kind, Objective)
            and "name" in vars(kind)
        ):
            if kind.name != file:
                raise ValueError(
                    f"data/objectives/{file}.py: {kind.__name__}.name is {kind.name!r}, "
                    f"not {file!r}"
                )
            return kind
    return None


OBJECTIVES = FolderMembers(__path__, load_objective, lambda kind: kind.name)
CLASSES = FolderMembers(__path__, load_objective, lambda kind: kind.__name__)  # by class name


def __getattr__(name: str) -> Any:
    """Return the objective class of that name."""
    if not name.startswith("_") and (kind := CLASSES.get(name)):
        return kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
