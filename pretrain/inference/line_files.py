"""A file of lines, or the terminal, to write results to."""

import contextlib

from data.store.atomic import replace_file


@contextlib.contextmanager
def sink(path):
    """A function that writes a line: to the terminal, or to a file that appears when all are written."""
    if path is None:
        yield print
        return
    with replace_file(path) as new, open(new, "w", encoding="utf-8") as file:
        yield lambda line: file.write(line + "\n")
