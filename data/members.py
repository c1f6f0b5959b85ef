"""What is imported when a run needs it: functions and classes as text, members of a folder by name,
libraries of an extra.

A table of names costs nothing to import; the modules that it names may be large.
"""

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

Member = TypeVar("Member")
ROOT = (__package__ or "data").removesuffix("data")  # "cloze." in the wheel


def import_member(member: str) -> Any:
    """Return the function or class of a text such as `data.store.reader:Store`."""
    module, _, name = member.partition(":")
    return getattr(importlib.import_module(f"{ROOT}{module}"), name)


def call_later(member: str) -> Callable[..., Any]:
    """Return a function that imports the function `module:name` when it is called, and calls it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return import_member(member)(*args, **kwargs)

    return call


@functools.cache
def has_module(name: str) -> bool:
    """Return whether a library is installed, without importing it."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a finder refuses it, or it stands in sys.modules unfinished
        return False
    return found is not None and found.origin is not None  # a mere folder of that name has none


def import_extra(name: str, extra: str, use: str) -> Any:
    """Return a library; raise ValueError with the command that installs it, if it is missing.

    use: what needs it, as the message begins.
    """
    if not has_module(name):
        raise ValueError(f"{use} needs {name}: .venv/bin/python -m pip install -e '.[{extra}]'")
    return importlib.import_module(name)


class FolderMembers(Mapping[str, Member], Generic[Member]):
    """What the files of a folder hold, one member each, by the member's name.

    A look-up imports one file; iterating imports all.
    """

    def __init__(
        self,
        path: Iterable[str],
        load: Callable[[str], Member | None],
        get_name: Callable[[Member], str],
        suffix: str = "",
    ) -> None:
        """List the files, and import none.

        Args:
          load: name of a file -> its member, or None if it holds none.
          get_name: member -> its name: the file's, or the file's without `_` in any case.
          suffix: the end of all names, which the files' names lack.
        """
        self.files = {
            file.name.replace("_", ""): file.name
            for file in sorted(pkgutil.iter_modules(path), key=lambda file: file.name)
        }
        self.load, self.get_name, self.suffix = load, get_name, suffix

    def find(self, name: Any) -> Member | None:
        """Return the member of a name in any case; None for other names, and what is no name."""
        if not isinstance(name, str):
            return None
        key = name.lower().removesuffix(self.suffix.lower()).replace("_", "")
        member = self.load(self.files[key]) if key in self.files else None
        if member is None or self.get_name(member).lower() != name.lower():
            return None
        return member

    def __getitem__(self, name: str) -> Member:
        """Return the member of a name; raise KeyError if there is none."""
        member = self.find(name)
        if member is None or self.get_name(member) != name:
            raise KeyError(name)
        return member

    def __iter__(self) -> Iterator[str]:
        """Yield all names, in the order of the files."""
        for file in sorted(self.files.values()):
            if (member := self.load(file)) is not None:
                yield self.get_name(member)

    def __len__(self) -> int:
        """Return the number of members."""
        return sum(1 for _ in self)
