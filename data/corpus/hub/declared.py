"""The size and hash that the Hub declares of a file, and the check of what was downloaded."""

import dataclasses
import hashlib
import pathlib
from typing import Any

from data.corpus.hub.client import HubError

CHUNK = 1 << 20  # bytes


@dataclasses.dataclass(frozen=True)
class DeclaredFile:
    """A file of a commit.

    Attributes:
      size: in bytes.
      sha256: of its content, if it is a large one; else "".
      blob: the id of git, the SHA-1 of a header and the content, if it is a small one.
    """

    size: int
    sha256: str
    blob: str


def read_declared(place: str, sibling: Any) -> DeclaredFile:
    """Return what the Hub declares of a file. Raises HubError if the size or hash is missing."""
    large = sibling.lfs
    size = large.size if large else sibling.size
    file = DeclaredFile(
        size if isinstance(size, int) else -1,
        str(large.sha256 if large else ""),
        str(sibling.blob_id or ""),
    )
    if file.size < 0 or not (file.sha256 or file.blob):
        raise HubError(f"{place}: the Hub declares no size or no hash of {sibling.rfilename}")
    return file


def check_content(path: pathlib.Path, file: DeclaredFile) -> None:
    """Raise HubError unless a file of the cache has the size and the hash that the Hub declares."""
    size = path.stat().st_size
    if size == file.size and compute_hash(path, file) == (file.sha256 or file.blob):
        return
    raise HubError(
        f"{path}: is not the file that the Hub declares (of {file.size:,} bytes, "
        f"{'SHA-256' if file.sha256 else 'git blob'} {file.sha256 or file.blob}); delete "
        f"{path.resolve()} and run the command again"
    )


def compute_hash(path: pathlib.Path, file: DeclaredFile) -> str:
    """Return the hash of a file, of the kind that the Hub declares."""
    digest = (
        hashlib.sha256()
        if file.sha256
        else hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    )
    with open(path, "rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
