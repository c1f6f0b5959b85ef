"""Pack the working tree into one file: the files that git tracks, with their content on disk.

The archive is identified by the hash of its content.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import tarfile
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from data.store.atomic import write_atomically

if TYPE_CHECKING:
    from pretrain.pod.gcloud import Pod

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def locate_archive(pod: Pod) -> pathlib.Path:
    """Return the path of the local copy of the archive that was pushed to a pod.

    A preempted pod gets the same code again, even if the working tree has changed. Pods of one name
    in two projects or zones have two archives.
    """
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    project = "".join(pod.project).removeprefix("--project=") or "default"
    parts = (urllib.parse.quote(part, safe="") for part in (project, pod.zone))
    return pathlib.Path(base, "cloze", "pod", *parts, f"{pod.name}.tar.gz")


def adopt_archive(pod: Pod) -> None:
    """Move the archive of an older version, which had one for each name, to `locate_archive`."""
    path = locate_archive(pod)
    old = path.parents[2] / path.name
    if old.exists() and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        old.replace(path)


def locate_mark(pod: Pod) -> pathlib.Path:
    """Return the path of the mark that a watch has deleted a pod, which is to be requested again.

    A watch that is interrupted in between leaves it to the next one.
    """
    return locate_archive(pod).with_name(f"{pod.name}.deleted")


def mark_deleted(pod: Pod, deleted: bool) -> None:
    """Leave the mark of `locate_mark`, or remove it."""
    if deleted:
        write_atomically(locate_mark(pod), "")
    else:
        locate_mark(pod).unlink(missing_ok=True)


@contextlib.contextmanager
def lock_archive(pod: Pod) -> Iterator[pathlib.Path]:
    """Yield the path of `locate_archive`; raise ValueError during another push to the same pod."""
    path = locate_archive(pod)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f"{pod.name}.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another `pod push` to {pod.name} is under way on this machine: wait until it has "
                "ended"
            ) from None
        yield path


def pack_tree(path: pathlib.Path, root: pathlib.Path | None = None) -> str:
    """Write the tracked files of a git checkout to an archive and return a line about it.

    The same tree gives the same bytes.

    Args:
      root: the checkout; this project by default.

    Raises:
      ValueError: if `root` is not a git checkout.
    """
    root = root or ROOT
    names = list_tracked(root)
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in sorted(names):
            tar.add(root / name, arcname=name, recursive=False, filter=normalize_entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    status = run_git(root, "status", "--porcelain", "--untracked-files=no")
    changed = sum(bool(line) for line in status.splitlines())
    untracked = len(run_git(root, "ls-files", "--others", "--exclude-standard").splitlines())
    commit = run_git(root, "rev-parse", "--short", "HEAD").strip()
    line = f"{len(names)} files, {len(buffer.getvalue()) / 1e6:.1f} MB: commit {commit}"
    if changed:
        line += f" with {changed} files changed since"
    if untracked:
        line += f"; NOT pushed: {untracked} files that git does not track (git add them)"
    return line


def hash_archive(path: pathlib.Path) -> str:
    """Return the first 12 digits of the archive's hash, the name of its folder on the workers."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def list_tracked(root: pathlib.Path) -> list[str]:
    """Return the existing files that git tracks in a checkout.

    Raises:
      ValueError: if `root` is not a git checkout, as in an installed wheel.
    """
    names = [
        name
        for name in run_git(root, "ls-files", "-z").split("\0")
        if name and os.path.lexists(root / name)
    ]
    if not names:
        raise ValueError(
            f"push copies the files that git tracks, and it tracks none in {root}: run pod in a "
            "checkout of Cloze"
        )
    return names


def name_tree(pod: Pod) -> str:
    """Return the name of the tree that was pushed to a pod; "TREE" before a first push."""
    path = locate_archive(pod)
    return hash_archive(path) if path.exists() else "TREE"


def normalize_entry(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the metadata that differs between two people's copies of the same tree."""
    info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    return info


def run_git(root: pathlib.Path, *arguments: str) -> str:
    """Run a git command in `root` and return its output."""
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        raise ValueError(
            f"push copies the files that git tracks, and {root} is not a git checkout "
            f"({reason.strip()}): run pod in a checkout of Cloze"
        ) from None
