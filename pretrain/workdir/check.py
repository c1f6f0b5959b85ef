"""An early check of the path of a workdir. Imports neither JAX nor TensorFlow."""

import os
import pathlib
import tempfile

from etils import epath

from data.corpus.paths import is_remote
from pretrain.config import read_json
from pretrain.overrides import ConfigError

# Files and folders that a run may leave in a workdir before it writes config.json.
LEFTOVERS = {
    *("checkpoints", "damaged", "vocabulary", "tensorboard", "lease", "lease.__lock"),
    *("metrics.jsonl", "goodput.json", "left_out.json", "source.json", "environment.jsonl"),
}
# Files that other programs may put into an empty folder.
HARMLESS = {"lost+found"}
HARMLESS_SUFFIXES = {".log", ".out", ".err", ".txt"}


def check_workdir_path(workdir: str | os.PathLike[str]) -> None:
    """Raise ConfigError for a path that cannot be a workdir, before a run does anything costly.

    The path must be writable. A folder that exists must be empty, or hold a workdir with a readable
    config.json. Nothing is left behind. Remote paths are not checked: an object store reports what
    it forbids when it is written to.
    """
    if is_remote(workdir):
        return
    path = pathlib.Path(os.path.abspath(workdir))
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        raise ConfigError(
            f"{existing} is a file, so {path} cannot be a run's folder; name another --workdir"
        )
    try:
        tempfile.TemporaryFile(dir=existing, prefix=".cloze").close()
    except OSError as error:
        raise ConfigError(
            f"{existing} cannot be written ({error.strerror}); name another --workdir, or change "
            "its permissions"
        ) from error
    if (path / "config.json").exists():
        read_json(path / "config.json")
    elif existing == path:
        foreign = sorted(child.name for child in path.iterdir() if not _is_expected(child))
        if foreign:
            raise ConfigError(
                f"{path} is not a run's folder (it has no config.json) and holds "
                f"{', '.join(foreign[:3])}{' ...' if len(foreign) > 3 else ''}; name another "
                "--workdir, new or empty"
            )


def has_finished_steps(workdir: epath.Path) -> bool:
    """Return whether a workdir has a checkpoint, sound or damaged, or a logged step.

    A run that fails before its first step is over, such as for want of memory, leaves none: its
    workdir accepts any configuration.
    """
    for folder in (workdir / "checkpoints", workdir / "damaged"):
        if folder.is_dir() and any(path.name.split(".")[0].isdigit() for path in folder.iterdir()):
            return True
    log = workdir / "metrics.jsonl"
    return log.exists() and log.stat().length > 0


def _is_expected(path: pathlib.Path) -> bool:
    """Return whether a file may be in a workdir without config.json."""
    return (
        path.name.startswith(".")
        or path.name in LEFTOVERS | HARMLESS
        or path.suffix in HARMLESS_SUFFIXES
    )
