"""Functions and classes that are imported when a run names them, as text `module:name`.

A table of names costs nothing to import; the modules that it names may be large.
"""

import importlib
from collections.abc import Callable
from typing import Any

ROOT = __name__.removesuffix("data.members")  # "cloze." in the wheel


def import_member(member: str) -> Any:
    """Return the function or class of a text such as `data.store.reader:Store`."""
    module, _, name = member.partition(":")
    return getattr(importlib.import_module(f"{ROOT}{module}"), name)


def call_later(member: str) -> Callable[..., Any]:
    """Return a function that imports the function `module:name` when it is called, and calls it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return import_member(member)(*args, **kwargs)

    return call
