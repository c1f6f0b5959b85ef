"""The formats of files of examples: the end of a name decides, or `--as FORMAT`."""

import pathlib

# Formats by the ends of names; a name may also end in .gz.
FORMATS = ("jsonl", "tsv", "csv", "conll", "json", "txt")


def find_suffix(source: str, file_format: str | None = None) -> str:
    """Return the suffix that says how a file is read, such as ".jsonl".

    Args:
      file_format: one of FORMATS, whatever the name is; None: the end of the name decides.

    Raises:
      ValueError: the format is unknown, or the source is no file.
    """
    if file_format is None:
        return pathlib.Path(source.removesuffix(".gz")).suffix
    if file_format not in FORMATS:
        raise ValueError(f"--as {file_format}: one of {', '.join(FORMATS)}")
    if source.startswith("tfds:"):
        raise ValueError(f"--as {file_format} is for files; {source} has a format of its own")
    return f".{file_format}"


def describe_remedy(suffixes: tuple[str, ...]) -> str:
    """Return the end of an error for a name with another end: how to name the format."""
    names = [suffix.removeprefix(".") for suffix in suffixes]
    return f"--as {names[0]} reads any file as {suffixes[0]} (--as: {', '.join(names)})"
