"""Check the sizes and checksums of a store's files."""

import pathlib
from typing import Any

import google_crc32c

from data.corpus.paths import is_remote
from data.corpus.untrusted import check_regular, open_regular


def compute_checksum(path: pathlib.Path) -> str:
    """Return the crc32c of a file as 8 hexadecimal digits.

    Raises ValueError if it is not a regular file.
    """
    checksum = google_crc32c.Checksum()
    with path.open("rb") if is_remote(path) else open_regular(path) as file:
        while block := file.read(1 << 20):
            checksum.update(block)
    return checksum.hexdigest().decode()


def verify_files(folder: pathlib.Path, files: dict[str, dict[str, Any]]) -> None:
    """Compare the checksums of files, {name: entry of the manifest}, with the manifest.

    Raises ValueError with the first file that differs.
    """
    for name, entry in files.items():
        if (checksum := compute_checksum(folder / name)) != entry["crc32c"]:
            raise ValueError(
                f"{folder / name}: crc32c {checksum}, the manifest says {entry['crc32c']}: "
                "its bytes have changed since it was written; "
                "copy it again, or prepare it again (--overwrite)"
            )


def check_sizes(folder: pathlib.Path, files: dict[str, dict[str, Any]]) -> None:
    """Compare the sizes of files, {name: entry of the manifest}, with the manifest.

    Raises ValueError with the first file that is missing, of another size, or a pipe or a device.
    """
    for name, entry in files.items():
        path = folder / name
        size = measure_regular_file(path) if path.exists() else None
        if size != entry["bytes"]:
            state = "is missing" if size is None else f"has {size:,} bytes"
            raise ValueError(
                f"{path} {state}, the manifest says {entry['bytes']:,}: "
                "prepare it again (--overwrite)"
            )


def measure_regular_file(path: pathlib.Path) -> int:
    """Return the number of bytes of a local or remote file.

    Raises ValueError if it is local and not a regular file.
    """
    status: Any = path.stat()
    if hasattr(status, "length"):
        return status.length
    check_regular(path, status)
    return status.st_size
