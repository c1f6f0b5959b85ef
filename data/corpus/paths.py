"""One way to name a file or a folder, here or in a bucket: pathlib here, etils.epath for gs:// and s3://."""

import pathlib
import re
from typing import cast

# The name of a TensorFlow dataset: tfds:NAME[/CONFIG][:VERSION][:SPLIT].
TFDS = re.compile(r"tfds:(?P<name>[\w./-]+(?::\d+\.\d+\.\d+)?)(?::(?P<split>.+))?")


def is_remote(path) -> bool:
    """True for gs://... and other URLs of storage that epath reads."""
    return "://" in str(path)


def as_path(path) -> pathlib.Path:
    """A pathlib.Path for a local path, an epath.Path (the same methods) for a remote one."""
    if is_remote(path):
        from etils import epath  # local work needs neither it nor the libraries behind it

        return cast(pathlib.Path, epath.Path(path))
    return pathlib.Path(path)
