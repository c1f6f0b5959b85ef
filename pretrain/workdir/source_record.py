"""The data source of a run, recorded in `source.json`: another source would change its batches."""

import json

import jax
from etils import epath

from data.store.atomic import write_atomically
from pretrain.overrides import ConfigError
from pretrain.workdir.check import has_finished_steps

NAME = "source.json"


def check_source(
    path: epath.PathLike, fingerprint: str, workdir: epath.Path, allow_changes: bool
) -> None:
    """Raise ConfigError if the run in `workdir` was trained on a source of another fingerprint.

    With `allow_changes` the change is printed instead. The path of the source may change. A workdir
    without a record, such as one made by an import, accepts any source.
    """
    record = workdir / NAME
    if not (record.exists() and has_finished_steps(workdir)):
        return
    try:
        recorded = json.loads(record.read_text())
        before, recorded_path = str(recorded["fingerprint"]), str(recorded["path"])[:300]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"{record} cannot be read, so the data that the run was trained on is not known; "
            "remove it, or name a new --workdir"
        ) from error
    if fingerprint == before:
        return
    change = f"{recorded_path!r} ({before[:8]}) -> {str(path)!r} ({fingerprint[:8]})"
    if not allow_changes:
        raise ConfigError(
            f"{workdir} holds a run of other data (another token store, or one that was prepared "
            f"again): {change}. Name the store with data.store, or a new --workdir, or add "
            "--allow-changes to `train`"
        )
    print(f"changed on continuing: data {change}")


def write_source(path: epath.PathLike, fingerprint: str, workdir: epath.Path) -> None:
    """Write the record of a source atomically, by process 0."""
    if jax.process_index() == 0:
        record = {"fingerprint": fingerprint, "path": str(path)}
        write_atomically(workdir / NAME, json.dumps(record) + "\n")
