"""Output of results as lines, to a file or the terminal."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from data.store.atomic import replace_file


@contextlib.contextmanager
def open_line_writer(path: str | os.PathLike[str] | None) -> Iterator[Callable[[str], Any]]:
    """Yield a function that writes a line: to the standard output, or to a file.

    The file appears when all lines are written.
    """
    if path is None:
        yield print
        return
    with replace_file(path) as new, open(new, "w", encoding="utf-8") as file:
        yield lambda line: file.write(line + "\n")
