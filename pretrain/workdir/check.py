"""Early checks of the path of a workdir. Imports neither JAX nor TensorFlow."""

import json
import os
import pathlib
import re
import tempfile
from typing import Any

from etils import epath

from data.corpus.buckets import check_bucket
from data.corpus.paths import check_utf8_path, is_remote
from data.corpus.untrusted import check_special_files
from pretrain.config import read_json
from pretrain.settings.overrides import ConfigError

# Files and folders that a run may leave in a workdir before it writes config.json.
LEFTOVERS = {
    *("checkpoints", "damaged", "vocabulary", "tensorboard", "lease", "lease.__lock"),
    *("metrics.jsonl", "goodput.json", "left_out.json", "source.json", "environment.jsonl"),
    # compiled programs (pretrain/pod/environment.py), and the steps that retention leaves
    *("compiled", "pinned"),
}
# What a run fills only after it has written config.json, and later replaces or sweeps: without
# config.json, their content is somebody else's.
FILLED_LATER = {
    *("checkpoints", "damaged", "vocabulary", "metrics.jsonl", "goodput.json"),
    "environment.jsonl",
}
# The keys of what it writes before, by one of several versions.
WRITTEN_BEFORE = {
    "source.json": ({"fingerprint", "path"},),
    "left_out.json": ({"omissions"}, {"told"}),
}
# Files that other programs may put into an empty folder.
HARMLESS = {"lost+found"}
HARMLESS_SUFFIXES = {".log", ".out", ".err", ".txt"}
HUGGING_FACE_KEYS = ("model_type", "architectures", "transformers_version")
PATTERN = re.compile(r"\[.[^/\]]*\]|\\|\*\*")  # as glob reads a path: a [ without ] is no pattern
MAX_NAMED = 5  # workdirs that a message names


def check_workdir_path(workdir: str | os.PathLike[str]) -> None:
    """Raise ConfigError for a path that cannot be a workdir, before a run does anything costly.

    The path must be writable. A folder that exists must be empty, or hold a workdir with a readable
    config.json. Nothing is left there. Of a remote path, network, rights of reading and bucket are
    checked.
    """
    check_place(workdir, "--workdir")
    if is_remote(workdir):
        return
    path = pathlib.Path(os.path.abspath(workdir))
    check_special_files(path)
    if is_hugging_face_folder(epath.Path(path)):
        raise ConfigError(
            f"{describe_hugging_face(epath.Path(path))}; to train a new model, name another "
            "--workdir"
        )
    if (path / "config.json").exists():
        read_json(path / "config.json")
    elif path.exists():
        foreign = sorted(child.name for child in path.iterdir() if not _is_expected(child))
        if foreign:
            raise ConfigError(
                f"{path} is not a run's folder (it has no config.json) and holds "
                f"{', '.join(foreign[:3])}{' ...' if len(foreign) > 3 else ''}; name another "
                "--workdir, new or empty"
            )


def check_place(folder: str | os.PathLike[str], flag: str) -> None:
    """Raise ConfigError for a path at which no folder can be made or written.

    Args:
      flag: names the path on the command line.
    """
    check_orbax_path(folder)
    if is_remote(folder):
        check_bucket(folder)
        return
    path = pathlib.Path(os.path.abspath(folder))
    if link := next((place for place in (path, *path.parents) if is_dangling(place)), None):
        raise ConfigError(
            f"{link} is a link to {os.readlink(link)}, which is not there; make that folder, or "
            f"name another {flag}"
        )
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        raise ConfigError(
            f"{existing} is a file, so {path} cannot be a run's folder; name another {flag}"
        )
    try:
        tempfile.TemporaryFile(dir=existing, prefix=".cloze").close()
    except OSError as error:
        raise ConfigError(
            f"{existing} cannot be written ({error.strerror}); name another {flag}, or change "
            "its permissions"
        ) from error


def is_dangling(path: pathlib.Path) -> bool:
    """Return whether a path is a link to what is not there."""
    return path.is_symlink() and not path.exists()


def check_orbax_path(folder: str | os.PathLike[str]) -> None:
    """Raise ConfigError for a folder to which Orbax saves no checkpoint that can be read.

    Orbax reads the absolute path as a pattern when it merges the files of its processes. It finds
    none of them below a name such as d[1], skips the merge and succeeds; ** it refuses.
    """
    path = str(folder) if is_remote(folder) else os.path.abspath(folder)
    check_utf8_path(path)
    if found := PATTERN.search(path):
        raise ConfigError(
            f"{path}: Orbax cannot save checkpoints to a path with {found[0]}, which is a pattern; "
            "name or rename a folder without it"
        )


def _is_expected(path: pathlib.Path) -> bool:
    """Return whether a file or folder may be in a workdir without config.json."""
    if path.name in FILLED_LATER | WRITTEN_BEFORE.keys() and not _is_empty(path):
        versions = WRITTEN_BEFORE.get(path.name, ())
        return any(keys <= read_object(epath.Path(path)).keys() for keys in versions)
    return (
        path.name.startswith(".")
        or path.name in LEFTOVERS | HARMLESS
        or path.suffix in HARMLESS_SUFFIXES
    )


def _is_empty(path: pathlib.Path) -> bool:
    """Return whether a file or a folder has no content."""
    if path.is_dir():
        return not any(path.iterdir())
    return path.is_file() and path.stat().st_size == 0


# ---- folders that are not workdirs -------------------------------------------


def explain_no_workdir(workdir: str | os.PathLike[str], lacks: str) -> str:
    """Return the message of an error for a folder that is not a workdir.

    Args:
      lacks: the file or the folder in it that is missing.
    """
    folder = epath.Path(workdir)
    if not folder.exists():
        problem = "no such folder"
    elif not folder.is_dir():
        problem = "a file"
    elif is_hugging_face_folder(folder):
        return f"{folder}: not a workdir; {describe_hugging_face(folder)}"
    elif inner := list_inner_workdirs(folder):
        names = [f"{folder}/{name}" for name in inner]
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        best = _find_best_seed(folder)
        return (
            f"{folder}: not a workdir, but a folder of {len(names)}: "
            f"{', '.join(names[:MAX_NAMED])}{more}. Name one of them"
            + (f", such as the best: --workdir {best}" if best else "")
        )
    else:
        problem = f"it has no {lacks}"
    return f"{folder}: not a workdir ({problem}); `train --workdir` and `import --workdir` make one"


def is_hugging_face_folder(folder: epath.Path) -> bool:
    """Return whether a folder has a config.json of `transformers`."""
    settings = read_object(folder / "config.json")
    return "type" not in settings and any(key in settings for key in HUGGING_FACE_KEYS)


def describe_hugging_face(folder: epath.Path) -> str:
    """Return what to do with a folder of `transformers` that was named as a workdir."""
    return (
        f"{folder} holds a model of Hugging Face (its config.json is of `transformers`). "
        f"`import {folder} --workdir W` makes a workdir W of it, which every command accepts"
    )


def list_inner_workdirs(folder: epath.Path) -> list[str]:
    """Return the names of the folders in a folder that are workdirs, such as seeds' folders."""
    return sorted(
        child.name
        for child in folder.iterdir()
        if child.is_dir() and (child / "config.json").exists() and (child / "checkpoints").is_dir()
    )


def _find_best_seed(folder: epath.Path) -> str | None:
    """Return the workdir with the best first score in the scores.json of `finetune --seeds`."""
    from pretrain.workdir.retention import find_cost

    scores = read_object(folder / "scores.json")
    metric, runs = scores.get("metric"), scores.get("runs")
    if not isinstance(metric, str) or not isinstance(runs, dict):
        return None
    values = {
        str(name): run[metric]
        for name, run in runs.items()
        if isinstance(run, dict) and isinstance(run.get(metric), int | float)
    }
    name = min(values, key=lambda name: find_cost(metric, values[name]), default=None)
    # The folder may have been moved after the scores were written.
    return None if name is None else f"{folder}/{os.path.basename(name.rstrip('/'))}"


def read_object(path: epath.Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if the file is absent or holds something else."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
