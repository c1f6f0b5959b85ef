"""Which damaged documents a run leaves out of its token store, kept in `left_out.json`: others would be other batches from then on."""

import json

import jax

from data.store.atomic import write_atomically
from data.store.salvage import told
from pretrain.overrides import ConfigError

NAME = "left_out.json"


def check_left_out(store, workdir, allow_changes):
    """Raise ConfigError where the run in `workdir` has left out other documents than the store does now, unless changes are allowed."""
    if not (workdir / "config.json").exists():
        return
    path = workdir / NAME
    try:
        before = json.loads(path.read_text())["told"] if path.exists() else told(None)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} cannot be read, so it is not known what the run has left out; remove it and add --allow-changes"
        ) from error
    if (now := told(store)) == before:
        return
    if not allow_changes:
        raise ConfigError(
            f"{workdir} holds a run that left out {before} of its token store, now it is {now}. Mend the store, or add --allow-changes"
        )
    print(f"changed on continuing: left out of the token store: {before} -> {now}")


def write_left_out(store, workdir):
    """By the first process, where there is or was something to tell; whole or not at all."""
    path = workdir / NAME
    if jax.process_index() or (told(store) == told(None) and not path.exists()):
        return
    documents = {
        split: numbers.tolist() for split, numbers in getattr(store, "left_out", {}).items()
    }
    write_atomically(path, json.dumps({"told": told(store), **documents}) + "\n")
