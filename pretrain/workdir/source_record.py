"""Which source a run in a workdir learns from, kept in `source.json`: another one would be other batches from then on."""

import json

import jax

from data.store.atomic import write_atomically
from pretrain.overrides import ConfigError

NAME = "source.json"


def check_source(path, fingerprint: str, workdir, allow_changes: bool) -> None:
    """Raise ConfigError where the run in `workdir` has learned from a source of another fingerprint, unless changes are allowed.

    The same source at another place is no other one. A workdir without a record, as an import makes it, has learned from none.
    """
    record = workdir / NAME
    if not (record.exists() and (workdir / "config.json").exists()):  # no run has begun there
        return
    try:
        recorded = json.loads(record.read_text())
        before, place = str(recorded["fingerprint"]), str(recorded["path"])[:300]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"{record} cannot be read, so it is not known what the run has learned from; remove it, or name a new --workdir"
        ) from error
    if fingerprint == before:
        return
    change = f"{place!r} ({before[:8]}) -> {str(path)!r} ({fingerprint[:8]})"
    if not allow_changes:
        raise ConfigError(
            f"{workdir} holds a run of other data (another token store, or one that was prepared anew): {change}. "
            "Name the store with data.store, or a new --workdir, or add --allow-changes"
        )
    print(f"changed on continuing: data {change}")


def write_source(path, fingerprint: str, workdir) -> None:
    """Write the record, by the first process, whole or not at all."""
    if jax.process_index() == 0:
        record = {"fingerprint": fingerprint, "path": str(path)}
        write_atomically(workdir / NAME, json.dumps(record) + "\n")
