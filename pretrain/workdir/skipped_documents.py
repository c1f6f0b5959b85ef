"""The damaged documents of a token store that a run skips, recorded in `left_out.json`.

Skipping other documents would change the batches of the run.
"""

import json

import jax

from data.source import Source, describe_omissions
from data.store.atomic import write_atomically
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.workdir import Workdir

NAME, OLD_KEY = "left_out.json", "told"  # the key of its text before 0.3.0


def check_skipped_documents(store: Source, workdir: Workdir, allow_changes: bool) -> None:
    """Raise ConfigError if the run in `workdir` skipped other documents than the store does now.

    With `allow_changes` the change is printed instead.
    """
    if not workdir.has_finished_steps:
        return
    path = workdir / NAME
    try:
        before = describe_omissions(None)
        if path.exists():
            record = json.loads(path.read_text())
            before = record["omissions" if "omissions" in record else OLD_KEY]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} cannot be read, so the documents that the run skipped are not known; remove "
            "it and add --allow-changes to `train`"
        ) from error
    if (now := describe_omissions(store)) == before:
        return
    if not allow_changes:
        raise ConfigError(
            f"{workdir} holds a run that left out {before} of its token store, now it is {now}. "
            "Repair the store, or add --allow-changes to `train`"
        )
    print(f"changed on continuing: left out of the token store: {before} -> {now}")


def write_skipped_documents(store: Source, workdir: Workdir) -> None:
    """Write the record atomically, by process 0, if documents are skipped or a record exists."""
    path = workdir / NAME
    if jax.process_index() or (
        describe_omissions(store) == describe_omissions(None) and not path.exists()
    ):
        return
    documents = {
        split: numbers.tolist()
        for split, numbers in getattr(store, "skipped_documents", {}).items()
    }
    write_atomically(path, json.dumps({"omissions": describe_omissions(store), **documents}) + "\n")
