"""Whether a place can be a run's workdir, and a new one that appears whole or not at all. Imports neither JAX nor TensorFlow."""

import contextlib
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any

from data.corpus.paths import as_path, is_remote
from pretrain.distributed import process_identity as process
from pretrain.overrides import ConfigError

# What a start that was killed leaves behind, and what others may put into an empty folder.
LEFTOVERS = {
    *("checkpoints", "damaged", "vocabulary", "tensorboard", "lease", "lease.__lock"),
    *("metrics.jsonl", "goodput.json", "left_out.json", "environment.jsonl"),
}
HARMLESS = {"lost+found"}
HARMLESS_SUFFIXES = {".log", ".out", ".err", ".txt"}


def check_place(workdir):
    """Raise ConfigError where `workdir` cannot be made or written, or is a folder of somebody else's; nothing is left there.

    A bucket is asked nothing: what it forbids is told when it is written to.
    """
    if is_remote(workdir):
        return
    path = pathlib.Path(os.path.abspath(workdir))
    there = next(one for one in (path, *path.parents) if one.exists())
    if not there.is_dir():
        raise ConfigError(
            f"{there} is a file, so {path} cannot be a run's folder; name another --workdir"
        )
    try:
        tempfile.TemporaryFile(dir=there, prefix=".cloze").close()
    except OSError as error:
        raise ConfigError(
            f"{there} cannot be written ({error.strerror}); name another --workdir, or change its permissions"
        ) from error
    if there == path and not (path / "config.json").exists():
        foreign = sorted(one.name for one in path.iterdir() if not _expected(one))
        if foreign:
            raise ConfigError(
                f"{path} is no run's folder (it has no config.json) and holds {', '.join(foreign[:3])}"
                f"{' ...' if len(foreign) > 3 else ''}; name another --workdir, new or empty"
            )


def _expected(path):
    return (
        path.name.startswith(".")
        or path.name in LEFTOVERS | HARMLESS
        or path.suffix in HARMLESS_SUFFIXES
    )


# ---- making one --------------------------------------------------------------


@contextlib.contextmanager
def build_folder(workdir):
    """Yield a hidden folder beside `workdir` to fill, which becomes `workdir` when the block ends and is removed when the block raises.

    The hidden folder belongs to this process alone: of two processes that build the same workdir, the first to end has built it.
    Raises FileExistsError where `workdir` is there and not empty, before the block or after it.
    """
    workdir = as_path(workdir)
    if workdir.exists() and any(workdir.iterdir()):
        raise FileExistsError(f"{workdir}: exists and is not empty; name a new workdir")
    workdir.parent.mkdir(parents=True, exist_ok=True)
    if not is_remote(workdir):
        _remove_abandoned(workdir)
    part = (
        workdir.parent
        / f".{workdir.name}.{_machine()}-{os.getpid()}-{process.start_time(os.getpid()) or 0}.part"
    )
    part.mkdir()
    remote: Any = part  # an epath.Path, which has rmtree
    try:
        yield part
        _move(part, workdir)
    except BaseException:
        remove = (
            remote.rmtree if is_remote(part) else lambda: shutil.rmtree(part, ignore_errors=True)
        )
        remove()
        raise


def _move(part, workdir):
    if is_remote(workdir):
        part.rename(workdir)
        return
    try:
        os.rename(
            part, workdir
        )  # one step, which an empty folder does not hinder and any other does
    except OSError as error:
        if not workdir.exists():
            raise
        raise FileExistsError(
            f"{workdir}: another process has filled it meanwhile; name a new workdir"
        ) from error


def _machine():
    boot, namespace = process.machine()
    return f"{boot[:8]}-{re.sub('[^0-9]', '', namespace)}"


def _remove_abandoned(workdir):
    """Remove hidden folders for `workdir` whose maker was a process of this machine that has died."""
    if not all(process.machine()):
        return  # whether a maker is alive cannot be known here
    form = re.compile(re.escape(f".{workdir.name}.{_machine()}-") + r"(\d{1,9})-(\d{1,18})\.part")
    for path in workdir.parent.iterdir():
        found = form.fullmatch(path.name)
        if found and not process.is_alive(int(found[1]), int(found[2])):
            shutil.rmtree(path)
