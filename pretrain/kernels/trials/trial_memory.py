"""What earlier comparisons have found, in a folder of the user's cache.

A file has one verdict, and the whole key that it is for: the operation, its shapes, the device and
the versions. A file that is torn, or of another key, is no verdict. While an operation is tested, a
mark stands next to its file, locked by the process. A mark without a lock is of a process that
ended: the operation hung, or its compiler took the process with it, so nobody tests it again until
the mark is deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import platform
import socket
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from data.store.atomic import write_atomically
from data.store.user_cache import find_cache
from pretrain.kernels.trials.comparison import MAX_REASON, Verdict

ROOM = pathlib.Path(__file__).resolve().parents[2]
CODE = "kernels", "mesh", "training/cross_entropy.py"
PACKAGES = (
    *("jax", "jaxlib", "libtpu", "jax-cuda12-pjrt", "jax-cuda13-pjrt", "nvidia-cudnn-cu12"),
    *("nvidia-cudnn-cu13", "jax-rocm60-pjrt", "jax-rocm7-pjrt"),
)
FLAGS = "XLA_FLAGS", "LIBTPU_INIT_ARGS"
MAX_BYTES = 1 << 16  # of a file
# A lock may not reach the other hosts of a shared folder, so their marks count when they are old.
STALE = 3600.0  # seconds


def describe_machine(device: Any) -> dict[str, Any]:
    """Return what a verdict depends on in addition to the operation and its shapes."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "device": device.device_kind,
        "runtime": str(device.client.platform_version),
        "versions": versions,
        "machine": platform.machine(),
        "flags": {name: os.environ.get(name, "") for name in FLAGS},
        "code": hash_code(),
    }


def hash_code() -> str:
    """Return a hash of the hand-made operations and of their comparison."""
    digest = hashlib.sha256()
    for name in CODE:
        path = ROOM / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(ROOM)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


class TrialMemory:
    """The verdicts of a machine's user."""

    def __init__(self, folder: pathlib.Path | None = None) -> None:
        """Open the memory; nothing is read or written.

        folder: $XDG_CACHE_HOME/cloze/kernels by default.
        """
        self.folder = folder or find_cache("kernels")

    def find_file(self, key: dict[str, Any]) -> pathlib.Path:
        """Return the file of a key."""
        text = json.dumps(key, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def read_verdict(self, key: dict[str, Any]) -> Verdict | None:
        """Return the verdict of a key, of a file or of a mark that was left; None without one."""
        return self._read_marks(key) or self._read_file(key)

    def _read_file(self, key: dict[str, Any]) -> Verdict | None:
        path = self.find_file(key)
        try:
            with open(path, "rb") as file:
                found = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.get("key") != json.loads(json.dumps(key)):
            return None
        texts = found.get("reason"), found.get("detail")
        if not all(isinstance(text, str) and len(text) <= MAX_REASON + 200 for text in texts):
            return None
        return Verdict(*(" ".join(str(text).split()) for text in texts))

    def _read_marks(self, key: dict[str, Any]) -> Verdict | None:
        host = socket.gethostname()
        for path in sorted(self.folder.glob(f"{self.find_file(key).stem}.*.testing")):
            try:
                age = time.time() - path.stat().st_mtime
                is_own = path.name.split(".", 1)[1].rpartition(".testing")[0].startswith(f"{host}-")
                if _is_locked(path) or not (is_own or age > STALE):
                    continue
            except OSError:  # its process has removed it
                continue
            return Verdict(
                "was left out, because the process that tested it hung or crashed "
                f"{age / 60:.0f} minutes ago; delete {path} to test it again"
            )
        return None

    def write_verdict(self, key: dict[str, Any], verdict: Verdict) -> None:
        """Remember a verdict; a cache that cannot be written costs another test."""
        text = json.dumps({"key": key, "time": time.time()} | verdict._asdict(), indent=1)
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.find_file(key), text + "\n")

    @contextlib.contextmanager
    def mark_trial(self, key: dict[str, Any]) -> Iterator[None]:
        """Leave a mark next to the file of a key until the block ends, by an error too."""
        name = f"{self.find_file(key).stem}.{socket.gethostname()}-{os.getpid()}.testing"
        path, mark = self.folder / name, None
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            mark = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            if mark is not None:
                with contextlib.suppress(OSError):
                    path.unlink()
                os.close(mark)


def _is_locked(path: pathlib.Path) -> bool:
    """Return whether a process holds the lock of a mark."""
    mark = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(mark)
    return False
