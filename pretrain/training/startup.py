"""What a run checks, writes and prints before its first step."""

import jax
import numpy as np

from data.pipeline import Stream
from data.store.atomic import replace_folder, write_atomically
from data.store.reader import Store
from data.store.salvage import told
from pretrain.config import read_json, to_json
from pretrain.distributed import malloc_advice
from pretrain.distributed.device_feed import local_rows
from pretrain.distributed.preflight import preflight_store
from pretrain.distributed.sharding import kept_whole
from pretrain.evaluation.label_checks import check_store
from pretrain.overrides import ConfigError, difference
from pretrain.training import truncation_report
from pretrain.workdir.skipped_documents import check_left_out, write_left_out
from pretrain.workdir.source_record import check_source, write_source

# A run may be continued with these changed: they choose where and how often, not what is computed.
FREE = (
    "mesh.",
    "evaluate.",
    "checkpoint.",
    "watchdog.",
    "guard.replicas",
    "train.steps",
    "train.stop_at_step",
)


FULL = 0.9  # share of the rows' places that hold a token: below it, whoever pads is told of packing

FREE += ("data.store", "data.threads", "data.prefetch", "model.remat", "model.encoder.remat")


def check_vocabulary(run, vocabulary):
    """Every id of the store must have a row in the model's embedding: an id too large is silent on the device."""
    if run.model.vocab < vocabulary.size:
        raise ConfigError(
            f"model.vocab={run.model.vocab} is smaller than the token store's vocabulary of {vocabulary.size}; "
            f"set model.vocab={-(-vocabulary.size // 128) * 128} (a multiple of 128 suits the hardware)"
        )
    for field, (role, more) in run.model.vocabulary_ids.items():
        value, there = (
            getattr(getattr(run.model, "encoder", run.model), field),
            getattr(vocabulary, role),
        )
        if there is not None and value != there + more:
            raise ConfigError(
                f"model.{field}={value}, but it is {more} more than the id of the {role} token, which is {there} in the token store's "
                f"vocabulary; set model.{field}={there + more}"
            )
    length = getattr(run.model, "length", None)
    if length is not None and run.data.objective.dims()["L"] > length:
        raise ConfigError(
            f"rows of {run.data.objective.dims()['L']} are longer than the model's positions; set model.length"
        )


def check_workdir(run, workdir, allow_changes):
    """A workdir belongs to one configuration, but for what FREE lists."""
    path = workdir / "config.json"
    if not path.exists():
        return
    rows = difference(read_json(path), run)
    changed = [f"{key}: {old} -> {new}" for key, old, new in rows if not key.startswith(FREE)]
    if changed and not allow_changes:
        raise ConfigError(
            f"{workdir} holds a run of another configuration: "
            + "; ".join(changed)
            + ". Name a new --workdir, or add --allow-changes"
        )
    for line in changed:
        print(f"changed on continuing: {line}")


def write_workdir(run, store, workdir):
    """What a run is told again by when it goes on, by the first process: each file or folder whole or not at all."""
    write_left_out(store, workdir)
    write_source(store, workdir)
    if jax.process_index():
        return
    write_atomically(workdir / "config.json", to_json(run))
    if not (workdir / "vocabulary").exists():
        with replace_folder(workdir / "vocabulary") as folder:
            store.vocabulary.save(str(folder))


def opening(run, store, stream, params, mesh, start, heldout=None):
    """What a person wants to know before waiting."""
    size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    lines = [
        f"{type(run.model).__name__} of {size:,} parameters in float32, computed in {run.train.compute_dtype}, "
        f"on {mesh.size} {mesh.devices.flat[0].device_kind} ({axes})",
        f"{run.data.objective.name} on {store.path}: {stream.rows:,} rows an epoch, {run.data.batch_size} a step, "
        f"{run.train.end * run.data.batch_size / stream.rows:.3g} epochs in {run.train.end:,} steps",
    ]
    if jax.process_count() > 1:
        own = sum(hi - lo for lo, hi in local_rows(mesh, run.data.batch_size))
        lines += [
            f"{jax.process_count()} processes; this one builds {own} of {run.data.batch_size} rows of each batch"
        ]
    if (lost := told(store)) != told(None):
        lines += [f"left out, for their bytes have changed: {lost}; see left_out.json"]
    if getattr(run.data.objective, "rows", None) == "documents" and stream.table.filled < FULL:
        lines += [
            f"{1 - stream.table.filled:.0%} of the rows is padding: data.objective.rows=packed puts several documents into one (docs/packing.md)"
        ]
    lines += truncation_report.told(stream) + (
        truncation_report.told(heldout, "held out: ") if heldout else []
    )
    lines += [
        f"kept whole: {path}, whose {size} does not divide by {axis}={mesh.shape[axis]}"
        for path, size, axis in kept_whole(params, mesh)
    ]
    lines += filter(None, [malloc_advice.advice(mesh.devices.flat[0].platform)])
    return "\n".join(lines + ([f"continuing after step {start:,}"] if start else []))


def open_data(run, workdir, allow_changes):
    """Return (the token store, the stream of its training rows, that of its held-out rows or None).

    Raises ConfigError where workdir, store and configuration do not fit each other, and ValueError where the store is damaged.
    """
    check_workdir(run, workdir, allow_changes)
    store = Store.open(run.data.store)
    check_vocabulary(run, store.vocabulary)
    check_store(run, store)
    store = preflight_store(run, store)
    check_source(store, workdir, allow_changes)
    check_left_out(store, workdir, allow_changes)
    stream = Stream(store, run.data, split="train", seed=run.train.seed)
    if not run.evaluate.every:
        return store, stream, None
    return store, stream, Stream(store, run.data, split="heldout", seed=run.train.seed)
