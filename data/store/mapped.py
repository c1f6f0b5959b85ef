"""Memory-mapped files, and what happens when one of them shrinks while it is read.

A store is replaced by a new folder and never rewritten in place, but another program may truncate
a file. Then its last page reads as zeros from the new end on, and reading beyond it ends the
process by SIGBUS. So rows are built between two checks of the sizes (`read_checked`). A page that
disappears between them is replaced by zeros, and the second check raises the error.
"""

import contextlib
import ctypes
import mmap
import os
import pathlib
import platform
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import numpy as np

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class MappedFile:
    """A file that is mapped: its path, its size then, and where it is in memory.

    Attributes:
      was_cut: whether a page was missing when it was read.
    """

    def __init__(self, path: pathlib.Path, pages: mmap.mmap, address: int) -> None:
        self.path, self.size, self.address = path, len(pages), address
        self.pages, self.was_cut = weakref.ref(pages), False

    def check_size(self) -> None:
        """Raise ValueError if the file is shorter, or was when one of its pages was read."""
        pages = self.pages()
        size = self.size if pages is None else pages.size()
        remedy = "copy the store again, or prepare it again (--overwrite)"
        if size < self.size:
            raise ValueError(
                f"{self.path} has {size:,} bytes, and had {self.size:,} when it was opened: "
                f"another program has truncated it; {remedy}"
            )
        if self.was_cut:
            raise ValueError(
                f"{self.path} was shorter for a while than its {self.size:,} bytes: "
                f"another program has truncated it; {remedy}"
            )


_files: dict[int, MappedFile] = {}  # those that are mapped now, by their addresses
_readers: set[int] = set()  # threads between two checks


def map_numbers(path: pathlib.Path, dtype: np.dtype, count: int | None = None) -> np.ndarray:
    """Return the numbers of a file, read-only and memory-mapped.

    Args:
      count: how many; None takes as many as the file has.

    Raises:
      ValueError: the file is shorter.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        wanted = size if count is None else count * dtype.itemsize
        if size < wanted:
            raise ValueError(
                f"{path} has {size:,} bytes, and {count:,} numbers of {dtype} take {wanted:,}"
            )
        if not wanted:  # an empty file cannot be mapped
            return np.zeros(0, dtype)
        pages = mmap.mmap(file.fileno(), wanted, access=mmap.ACCESS_READ)
    numbers = np.frombuffer(pages, dtype)
    address = numbers.__array_interface__["data"][0]
    _files[address] = MappedFile(path, pages, address)
    weakref.finalize(pages, _files.pop, address, None).atexit = False
    _catch_missing_pages()
    return numbers


def check_mapped_files(folder: pathlib.Path) -> None:
    """Raise ValueError if a mapped file of a folder has become shorter; it names both sizes."""
    for file in list(_files.values()):
        if file.path.parent == folder:
            file.check_size()


def read_checked(
    read: Callable[Arguments, Result], folder: pathlib.Path | None
) -> Callable[Arguments, Result]:
    """Return a function that calls `read` between two checks of the mapped files of a folder.

    Without a folder `read` itself is returned: it reads no mapped files.
    """
    if folder is None:
        return read

    def read_between_checks(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with _keep_reading(folder):
            return read(*args, **options)

    return read_between_checks


@contextlib.contextmanager
def _keep_reading(folder: pathlib.Path) -> Iterator[None]:
    """Check a folder's files before and after the block, in which a missing page reads as zeros."""
    check_mapped_files(folder)
    thread = threading.get_ident()
    is_outermost = thread not in _readers
    _readers.add(thread)
    try:
        yield
    except Exception:
        check_mapped_files(folder)  # zeros instead of what is missing may have caused the error
        raise
    finally:
        if is_outermost:
            _readers.discard(thread)
    check_mapped_files(folder)


# ---- missing pages ------------------------------------------------------------


class _Action(ctypes.Structure):
    """`struct sigaction` of Linux's C libraries on 64-bit machines."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


SA_SIGINFO = 4  # of <asm/signal.h>
ADDRESS_OFFSET = 16  # [bytes] of si_addr in siginfo_t
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_is_caught = False
_previous = _Action()


def _catch_missing_pages() -> None:
    """Install `_replace_pages`, once. Elsewhere than on 64-bit Linux a missing page is fatal."""
    global _is_caught
    if _is_caught or sys.platform != "linux" or platform.architecture()[0] != "64bit":
        return
    _is_caught = True
    action = _Action(ctypes.cast(_handler, ctypes.c_void_p).value, flags=SA_SIGINFO)
    _libc.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(_previous))


def _replace_pages(number: int, info: int, context: Any) -> None:
    """Map zeros from a missing page of a mapped file to the file's end.

    The thread that has read the page runs this inside of NumPy, and repeats the read afterwards. A
    fault of other memory is repeated with the handler that was there before.
    """
    address = ctypes.c_void_p.from_address(info + ADDRESS_OFFSET).value or 0
    for file in list(_files.values()):
        if file.address <= address < file.address + file.size:
            if threading.get_ident() not in _readers:
                line = f"error: {file.path} was truncated while it was read\n"
                os.write(2, line.encode(errors="backslashreplace"))
                os._exit(2)
            file.was_cut = True
            page = address - address % mmap.PAGESIZE
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
            rest = file.address + file.size - page
            if _libc.mmap(page, rest, mmap.PROT_READ, flags, -1, 0) == page:
                return
    _libc.sigaction(signal.SIGBUS, ctypes.byref(_previous), None)


_MAP_FIXED = 0x10
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_long,
)
_handler = _Handler(_replace_pages)
