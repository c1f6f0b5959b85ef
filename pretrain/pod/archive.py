"""The working tree as one file: what git tracks, as it lies on disk now, under a name that tells its content."""

import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import tarfile

from data.store.atomic import write_atomically

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def cache(name):
    """Where the archive that was pushed to pod `name` is kept: a preempted pod gets the same code again, whatever changed here."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "cloze" / "pod" / f"{name}.tar.gz"


def pack(path, root=None):
    """Write the tracked files of `root` (this project) to `path` and return a line that describes them. The same tree gives the same bytes.

    Raises ValueError where `root` is no git checkout.
    """
    root = root or ROOT
    names = [
        name
        for name in git(root, "ls-files", "-z").split("\0")
        if name and os.path.lexists(root / name)
    ]
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in sorted(names):
            tar.add(root / name, arcname=name, recursive=False, filter=plain)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    changed = len(
        [
            line
            for line in git(root, "status", "--porcelain", "--untracked-files=no").splitlines()
            if line
        ]
    )
    untracked = len(git(root, "ls-files", "--others", "--exclude-standard").splitlines())
    commit = git(root, "rev-parse", "--short", "HEAD").strip()
    said = f"{len(names)} files, {len(buffer.getvalue()) / 1e6:.1f} MB: commit {commit}"
    said += f" with {changed} files changed since" if changed else ""
    return said + (
        f"; NOT pushed: {untracked} files that git does not track (git add them)"
        if untracked
        else ""
    )


def identity(path):
    """The first 12 digits of the archive's hash: the name of its folder on the workers."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def plain(info):
    """Drop what differs between two people's copies of the same tree."""
    info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    return info


def git(root, *words):
    try:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise ValueError(
            f"push copies what git tracks, and {root} is no git checkout: {said.strip()}"
        ) from None
