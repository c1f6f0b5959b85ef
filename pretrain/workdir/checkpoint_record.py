"""The record of a checkpoint: every leaf's dtype, shape and fingerprint, with the configuration.

The record is stored with a checksum of itself.
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol, Self

import google_crc32c
import jax
from etils import epath

from data.corpus.untrusted import parse_bounded_json, read_bounded
from pretrain.config import FORMAT, Run, check_format, to_json
from pretrain.mesh.replica_check import fingerprint_leaves
from pretrain.mesh.sharding import format_path
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.errors import DamagedCheckpoint

FILE = "metadata"  # in the folder record/
MAX_RECORD_BYTES, MAX_RECORD_VALUES = 64 << 20, 2_000_000
MAX_DIMENSION = 1 << 40
# {key of a record: its types}, in addition to the trees of arrays
KINDS: dict[str, type | tuple[type, ...]] = {
    "step": int,
    "run": str,
    "encoding": str,
    "rows": (int, dict),
    "scores": dict,
    "guard": dict,
    "stopping": dict,
    "params": dict,
    "optimizer": dict,
    "variables": dict,
}
OPTIONAL = ("guard", "stopping")
# The trees of arrays in a state, and the name of their leaves in errors.
ITEMS = {
    "params": "parameters",
    "optimizer": "optimizer's values",
    "variables": "states between steps",
}


class SavedState(Protocol):
    """A state of training as checkpoints see it: `pretrain.training.state.TrainState`."""

    @property
    def step(self) -> Any: ...
    @property
    def params(self) -> Any: ...
    @property
    def optimizer(self) -> Any: ...
    @property
    def variables(self) -> Any: ...
    def replace(self, **overrides: Any) -> Self: ...


def make_record(
    state: SavedState,
    run: Run,
    encoding: str,
    rows: int | Mapping[str, int],
    origin: Any,
    scores: Mapping[str, float],
    counts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the record of a state; the arguments are as for `Checkpoints.save`."""
    return {
        "format": FORMAT,
        "step": int(state.step),
        "run": to_json(run),
        "encoding": encoding,
        "rows": rows,
        "origin": origin,
        "scores": scores,
        "guard": {},
        "stopping": {},
        **{name: fingerprint_leaves(getattr(state, name)) for name in ITEMS},
        **counts,
    }


def seal_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return {"record": the record, "crc32c": the checksum of its JSON text}."""
    text = json.dumps(record, sort_keys=True)
    return {"record": record, "crc32c": google_crc32c.value(text.encode())}


def is_sealed(sealed: Any) -> bool:
    """Return whether a JSON value is a record with its correct checksum; see `seal_record`."""
    record = sealed.get("record") if isinstance(sealed, dict) else None
    return isinstance(record, dict) and seal_record(record)["crc32c"] == sealed.get("crc32c")


def read_record(step_folder: epath.Path) -> dict[str, Any]:
    """Return the record in the folder of a committed step, read without Orbax.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      DamagedCheckpoint: the record is missing, cut or altered, or is of another step than the
        folder's name.
      ConfigError: the checkpoint has another format.
      OSError: the system refuses to read the file, which proves nothing about it.
    """
    if not step_folder.is_dir():
        raise FileNotFoundError(f"{step_folder}: no such checkpoint")
    try:
        content = read_bounded(step_folder / "record" / FILE, MAX_RECORD_BYTES)
        sealed = parse_bounded_json(content, "its record", MAX_RECORD_VALUES, finite=False)
    except FileNotFoundError as error:
        raise DamagedCheckpoint("its record is missing") from error
    except ValueError as error:
        raise DamagedCheckpoint(str(error)) from error
    if not is_sealed(sealed):
        raise DamagedCheckpoint("its record does not agree with its own checksum")
    record = sealed["record"]
    check_format(record.get("format"), str(step_folder))
    _check_structure(record)
    if str(record.get("step")) != step_folder.name:
        raise DamagedCheckpoint(
            f"its folder is named {step_folder.name}, its record is of step {record.get('step')}; "
            "a copied or renamed folder is not a checkpoint of that step"
        )
    return record


def _check_structure(record: Mapping[str, Any]) -> None:
    """Raise DamagedCheckpoint unless a record has what each reader of it relies on.

    A checksum shows that nothing has changed by accident, not who wrote the record.
    """
    for key, kinds in KINDS.items():
        value = record.get(key, {} if key in OPTIONAL else None)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise DamagedCheckpoint(f"its record has no sound {key}: {value!r:.80}")
    for name in ITEMS:
        for path, leaf in record[name].items():
            if not (
                isinstance(leaf, list)
                and len(leaf) == 3
                and isinstance(leaf[0], str)
                and isinstance(leaf[1], list)
                and all(type(size) is int and 0 <= size < MAX_DIMENSION for size in leaf[1])
            ):
                raise DamagedCheckpoint(f"its record describes {path[:200]!r} as {leaf!r:.80}")


def check_items(record: Mapping[str, Any], abstract: SavedState) -> list[str]:
    """Return the names of the trees that a record has; raise ConfigError if their leaves differ.

    A checkpoint without `variables`, such as one of an import or an average, fits any model: the
    model's variables start from zero.

    Args:
      abstract: a state of shapes and dtypes, which the leaves must have.
    """
    for name, description in ITEMS.items():
        if record[name] or name != "variables":
            check_leaves(record[name], getattr(abstract, name), description)
    return [name for name in ITEMS if record[name]]


def check_leaves(recorded: Mapping[str, Any], tree: Any, description: str) -> None:
    """Raise ConfigError if the saved leaves have other paths, dtypes or shapes than `tree`.

    Args:
      recorded: {path: [dtype, shape, fingerprint]} of the saved leaves.
    """
    expected = {
        format_path(keys): [str(leaf.dtype), list(leaf.shape)]
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    for path in sorted(expected.keys() | recorded.keys()):
        saved = recorded[path][:2] if path in recorded else "absent"
        wanted = expected.get(path, "absent")
        if saved != wanted:
            raise ConfigError(
                f"the checkpoint's {description} do not fit this configuration: {path} was saved "
                f"as {saved}, and the configuration needs {wanted}"
            )


def find_ema(
    workdir: epath.PathLike, record: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return {path of a parameter: leaf} of the EMA, and {name: leaf} of the gradient norms.

    With `guard.norm_factor`, both are a pair in the optimizer's state; without, there is only the
    EMA. Raises ConfigError if the run keeps no EMA.
    """
    leaves = record["optimizer"]
    norms = {path[2:]: leaf for path, leaf in leaves.items() if path in ("0/mean", "0/taken")}
    start = "1/ema/" if norms else "ema/"
    ema = {path: leaves.get(start + path) for path in record["params"]}
    if not all(ema.values()):
        raise ConfigError(
            f"{workdir} maintains no moving average of its parameters; train with train.ema_decay, "
            "or use the parameters themselves (--parameters raw; `average` without --ema)"
        )
    return ema, norms


def compare_leaves(leaves: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Raise DamagedCheckpoint if a leaf that was read is not the saved one.

    Both are {path: [dtype, shape, fingerprint]}.
    """
    for path, leaf in leaves.items():
        if leaf != recorded[path]:
            raise DamagedCheckpoint(
                f"{path} is not what was saved (fingerprint {leaf[2]}, recorded "
                f"{recorded[path][2]})"
            )
