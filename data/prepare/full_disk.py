"""Say how much space a store lacks."""

import contextlib
import errno
import pathlib
import shutil
from collections.abc import Iterator

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def explain_full_disk(
    output: pathlib.Path, text_bytes: int, resumes: bool = False
) -> Iterator[None]:
    """Raise an error of a full disk within the block with the free space and the remedy.

    Args:
      output: folder of the store; its scratch folder, next to it, is removed by then.
      text_bytes: bytes of the sources' files; 0 if they are not known.
      resumes: whether the results so far stay for the next run.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or error.filename != str(output):
            raise
        free = shutil.disk_usage(output.parent).free
        text = f" of {text_bytes:,} bytes of text" if text_bytes else ""
        left = "The same command goes on there" if resumes else "Nothing of it is left there"
        raise OSError(
            f"{output}: {error.strerror}: a store{text} needs more than the {free:,} bytes that "
            f"are free in {output.parent}. {left}, and a store that was there is unchanged. Remove "
            "other files, or name another --output"
        ) from error
