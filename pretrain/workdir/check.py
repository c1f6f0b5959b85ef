"""Whether a place can be a run's workdir, said before anything costs time. Imports neither JAX nor TensorFlow."""

import os
import pathlib
import tempfile

from data.corpus.paths import is_remote
from pretrain.config import read_json
from pretrain.overrides import ConfigError

# What a start that was killed leaves behind, and what others may put into an empty folder.
LEFTOVERS = {
    *("checkpoints", "damaged", "vocabulary", "tensorboard", "lease", "lease.__lock"),
    *("metrics.jsonl", "goodput.json", "left_out.json", "source.json", "environment.jsonl"),
}
HARMLESS = {"lost+found"}
HARMLESS_SUFFIXES = {".log", ".out", ".err", ".txt"}


def check_place(workdir):
    """Raise ConfigError where `workdir` cannot be made or written, is a folder of somebody else's, or a workdir that cannot be read.

    Nothing is left there.

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
    if (path / "config.json").exists():
        read_json(path / "config.json")
    elif there == path:
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
