"""Which token store a run in a workdir learns from, kept in `source.json`: another one would be other batches from then on."""

import json

import jax

from data.store.atomic import write_atomically
from data.store.reader import Store
from pretrain.overrides import ConfigError

NAME = "source.json"


def identify(store: Store) -> str:
    """Return the fingerprint of a store as it was written; `left_out.json` says what of it is damaged and left out."""
    return Store(store.path, store.manifest).fingerprint


def check_source(store: Store, workdir, allow_changes: bool) -> None:
    """Raise ConfigError where the run in `workdir` has learned from another token store, unless changes are allowed.

    The same store at another place is no other one. A workdir without a record, as an import makes it, has learned from none.
    """
    path = workdir / NAME
    if not (path.exists() and (workdir / "config.json").exists()):  # no run has begun there
        return
    try:
        recorded = json.loads(path.read_text())
        before, place = str(recorded["fingerprint"]), str(recorded["path"])[:300]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read, so it is not known from which token store the run has learned; remove it, or name a new --workdir"
        ) from error
    if (now := identify(store)) == before:
        return
    change = f"{place!r} ({before[:8]}) -> {str(store.path)!r} ({now[:8]})"
    if not allow_changes:
        raise ConfigError(
            f"{workdir} holds a run of another token store, whose ids or sources differ: {change}. "
            "Name the store with data.store, or a new --workdir, or add --allow-changes"
        )
    print(f"changed on continuing: token store {change}")


def write_source(store: Store, workdir) -> None:
    """Write the record, by the first process, whole or not at all."""
    if jax.process_index() == 0:
        record = {"fingerprint": identify(store), "path": str(store.path)}
        write_atomically(workdir / NAME, json.dumps(record) + "\n")
