"""Command lines of verbs, written as one types them."""

import shlex


def split_words(*lines: str) -> list[str]:
    """Return the words of a command line that is written in one or several strings; a word with
    blanks stands in quotation marks, as in a shell.
    """
    return [word for line in lines for word in shlex.split(line)]
