"""Local and remote paths: pathlib for local ones, etils.epath for gs:// and s3://."""

import os
import pathlib
import re
from typing import cast

# The name of a TensorFlow dataset: tfds:NAME[/CONFIG][:VERSION][:SPLIT].
TFDS_NAME = re.compile(r"tfds:(?P<name>[\w./-]+(?::\d+\.\d+\.\d+)?)(?::(?P<split>.+))?")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL, such as gs://..., which epath reads."""
    return "://" in str(path)


def as_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Return a pathlib.Path for a local path, an epath.Path (with the same methods) for a URL."""
    if is_remote(path):
        from etils import epath  # slow to import, and only URLs need it

        return cast(pathlib.Path, epath.Path(path))
    return pathlib.Path(path)
