"""The data source of a run, recorded in `source.json`: another source would change its batches."""

import json

import jax
from etils import epath

from data.store.atomic import write_atomically
from data.store.reader import Store
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.check import read_object
from pretrain.workdir.workdir import Workdir

NAME = "source.json"


def check_source(
    path: epath.PathLike, fingerprint: str, workdir: Workdir, allow_changes: bool
) -> None:
    """Raise ConfigError if the run in `workdir` was trained on a source of another fingerprint.

    With `allow_changes` the change is printed instead. The path of the source may change. A workdir
    without a record, such as one made by an import, accepts any source.
    """
    record = workdir / NAME
    if not (record.exists() and workdir.has_finished_steps):
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


def check_heldout(store: Store, workdir: Workdir) -> str | None:
    """Check that the held-out part of a run's store is the one that the run did not train on.

    Returns:
      A line about what cannot be checked, if the record is of version 0.2.0 and the store has
      changed; else None.

    Raises:
      ConfigError: if the store was prepared again, and its held-out documents are others.
    """
    record = read_object(workdir / NAME)
    if "heldout" in record:
        if record["heldout"] != store.heldout_digest:
            raise ConfigError(
                f"{store.path} was prepared again: its held-out documents are not those that the "
                f"run in {workdir} has never seen, so it may have been trained on them. Prepare it "
                "as it was, or name held-out texts of your own with --store"
            )
    elif "fingerprint" in record and record["fingerprint"] != store.fingerprint:
        return (
            f"{store.path} has changed since the run in {workdir} was trained on it, by a version "
            "of Cloze that did not record the held-out part: whether it was trained on documents "
            "that are held out now cannot be checked"
        )
    return None


def write_source(
    path: epath.PathLike, fingerprint: str, workdir: Workdir, heldout: str | None = None
) -> None:
    """Write the record of a source atomically, by process 0.

    heldout: digest of the held-out documents of a store.
    """
    if jax.process_index() == 0:
        record = {"fingerprint": fingerprint, "path": str(path)}
        if heldout is not None:
            record["heldout"] = heldout
        write_atomically(workdir / NAME, json.dumps(record) + "\n")
