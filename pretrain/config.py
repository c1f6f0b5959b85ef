"""The configuration of a run: a tree of frozen dataclasses.

It is written in Python, overridden by `path=value` arguments and saved as JSON.

    run = load("configs/bert_base.py", ["optimizer.learning_rate=3e-4", "model.depth=6"])
    assert from_json(to_json(run)) == run

No JAX and no TensorFlow, so that a misspelt key is an error in well under a second.
"""

import difflib
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from data.config import Data as Data  # for configuration files, as the sections below
from data.corpus.buckets import check_bucket
from data.corpus.paths import as_path, check_scheme, is_remote
from data.members import call_later
from data.rows.ramp import FULL_BATCH
from pretrain.host.command import PROGRAM, explain_missing_module
from pretrain.run import SECTION_CLASSES, Run, list_ramps, validate_run
from pretrain.settings import Adafactor as Adafactor
from pretrain.settings import AdamW as AdamW
from pretrain.settings import Checkpoint as Checkpoint
from pretrain.settings import Evaluate as Evaluate
from pretrain.settings import Guard as Guard
from pretrain.settings import Lamb as Lamb
from pretrain.settings import Limits as Limits
from pretrain.settings import Lion as Lion
from pretrain.settings import Mesh as Mesh
from pretrain.settings import Muon as Muon
from pretrain.settings import Optimizer as Optimizer
from pretrain.settings import Phase as Phase
from pretrain.settings import StableAdamW as StableAdamW
from pretrain.settings import Train as Train
from pretrain.settings.fields import list_dropped
from pretrain.settings.overrides import (
    ConfigError,
    apply_overrides,
    check_types,
    from_plain,
    parse_override,
    show_value,
    to_plain,
)

# The format of a workdir: of its config.json and of its checkpoints. It is raised when fields,
# parameter paths or files change so that earlier ones cannot be read. A config.json of format 1
# (version 0.1.0) has no number.
FORMAT = 3

CONFIGS = pathlib.Path(__file__).parent.parent / "configs"

# What only a run with phases or ramps needs.
set_phases, set_length, resolve_phases = (
    call_later(f"pretrain.phases:{name}") for name in ("set_phases", "set_length", "resolve_phases")
)


# ---- loading -----------------------------------------------------------------


def load(name: str | pathlib.Path, overrides: Sequence[str] = ()) -> Run:
    """Return the validated run of a configuration file, with overrides.

    Args:
      name: `bert_base`, `configs/bert_base.py`, any other Python file with a `config()`, or a saved
        `config.json`, here or in a bucket (gs://).
      overrides: `path=value` arguments.

    Raises:
      ConfigError: with the name of the file or the key, and the nearest one that exists.
    """
    path = find_file(name)
    run = read_json(path) if path.suffix == ".json" else _execute_file(path)
    run = override_run(run, overrides)
    validate_run(run)
    if run.phases or run.data.batch_ramp != FULL_BATCH or list_ramps(run):
        resolve_phases(run)
    return run


def print_notice(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr)


def override_run(
    run: Run, arguments: Sequence[str], report: Callable[[str], None] = print_notice
) -> Run:
    """Return a copy of `run` with `path=value` arguments applied in any order, not validated.

    Args:
      run: the run.
      arguments: the overrides.
      report: called with a line for each argument that replaces a whole section, such as
        optimizer=lamb, and drops settings of it.

    Raises:
      ConfigError: an argument is not a setting of the run.
    """
    words = [parse_override(argument) for argument in arguments]
    of_phases = [word for word in words if word.names[0] == "phases" and len(word.names) > 1]
    overrides = [word for word in words if word not in of_phases]
    changed = apply_overrides(run, overrides)
    for line in list_dropped(run, changed, overrides):
        report(line)
    if of_phases:
        changed = set_phases(changed, of_phases)
    return set_length(changed, overrides, report) if changed.phases else changed


def list_names() -> list[str]:
    """Return the names of the configurations that ship with Cloze."""
    return sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem != "__init__")


def find_file(name: str | pathlib.Path) -> pathlib.Path:
    """Return the path of a configuration's file; raise ConfigError where there is none."""
    if is_remote(name):
        return _find_in_bucket(str(name))
    named = pathlib.Path(name)
    for path in (named, CONFIGS / f"{name}.py"):
        if path.suffix in (".py", ".json") and path.is_file():
            return path
    close = difflib.get_close_matches(named.stem, list_names(), n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ConfigError(
        f"no configuration {str(name)!r}: {hint}`{PROGRAM} describe --list` shows all names; a "
        "path of a .py or .json file is one, too"
    )


def _find_in_bucket(url: str) -> pathlib.Path:
    """Return the path of a saved configuration in a bucket. A .py file there is not executed."""
    check_scheme(url)
    if not url.endswith(".json"):
        raise ConfigError(
            f"no configuration {url!r}: of a bucket only the config.json of a workdir is read; "
            "copy another file to this machine"
        )
    check_bucket(url)
    path = as_path(url)
    if not path.exists():
        raise ConfigError(f"no configuration {url!r}: there is no such file")
    return path


class FreshLoader(importlib.machinery.SourceFileLoader):
    """Translates a file each time: Python takes one of the same second and size for the same."""

    def path_stats(self, path: Any) -> Any:
        """Raise OSError, as where nothing is known of what was translated before."""
        raise OSError(f"{path} is translated anew")


def _execute_file(path: pathlib.Path) -> Run:
    name = f"configuration_{path.stem}"
    loader = FreshLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None and spec.loader is not None  # there is a loader for the suffix .py
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if hint := explain_missing_module(error.name or ""):
            raise ConfigError(f"{path}: {error}: {hint}") from error
        raise
    if not callable(getattr(module, "config", None)):
        raise ConfigError(f"{path}: a configuration file defines config() -> Run")
    try:
        run = module.config()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(run, Run):
        raise ConfigError(f"{path}: config() returned {type(run).__name__}, not a Run")
    check_types(run, "")
    return run


# ---- JSON --------------------------------------------------------------------


def to_json(run: Run) -> str:
    """Return the resolved configuration as JSON, with the number of the format."""
    return json.dumps({"format": FORMAT, **to_plain(run)}, indent=2) + "\n"


def read_json(path: Any) -> Run:
    """Return the run in a saved configuration, a path of pathlib or epath.

    Raises ConfigError, which names the file, where it is damaged or has another format.
    """
    try:
        return from_json(path.read_text(), where=str(path))
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error


def read_settings(path: Any) -> dict[str, Any]:
    """Return the JSON object in a saved configuration of any format; {} if there is no file.

    Raises ConfigError, which names the file, where it is damaged.
    """
    if not path.exists():
        return {}
    try:
        settings = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: not a saved configuration (not a JSON object)")
    return settings


def flatten_config(tree: Any, path: str = "") -> dict[str, Any]:
    """Return {path: value} of the nested objects of `to_json`; dots join the keys of a path."""
    if not isinstance(tree, dict):
        return {path: tree}
    return {
        name: value
        for key, subtree in tree.items()
        for name, value in flatten_config(subtree, f"{path}.{key}" if path else key).items()
    }


def from_json(text: str, where: str = "configuration") -> Run:
    """Return the run that `to_json` wrote; raise ConfigError, which names `where`, for others."""
    try:
        tree = json.loads(text)
    except ValueError as error:  # also a number of thousands of digits
        raise ConfigError(f"{where}: not JSON ({error})") from error
    if isinstance(tree, dict) and tree.get("type") == Run.__name__:
        check_format(tree.pop("format", None), where)
    run = from_plain(tree, SECTION_CLASSES, where)
    if not isinstance(run, Run):
        raise ConfigError(f"{where}: not a saved configuration (its type is not Run)")
    check_types(run, where)
    return run


def check_format(found: Any, where: str) -> None:
    """Raise ConfigError unless a workdir's format, None without a number, is `FORMAT`."""
    if type(found) is not int or found != FORMAT:
        number = "no format number" if found is None else f"format {show_value(found)}"
        raise ConfigError(
            f"{where} has {number}, and this version of Cloze reads workdirs of format {FORMAT}: "
            "export the workdir with the version that wrote it, and import that folder with this "
            "one"
        )
