"""Checkpoints: Orbax writes and reads them; this layer says whether what was read is what was written.

Orbax restores flipped bits, another dtype and a half-fitting tree without a word (measured: 60 of 60 flips in random weights). So each
checkpoint carries, beside its arrays, a record of every leaf (dtype, shape, fingerprint) with the configuration and the fingerprint of
what the numbers in a batch mean (`data.source.Encoding`), and nothing is handed out that does not agree with it. A checkpoint that is proven damaged (evidence.py) is set aside and the
one before it is used. Any other failed read stops with its own error and moves nothing.

    checkpoints/<step>/{params,optimizer}  arrays and inventory.json      checkpoints/<step>/record  JSON
    checkpoints/<step>/variables           what the model keeps of the rows, where it keeps anything
"""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from pretrain.config import FORMAT, from_json, read_json, to_json
from pretrain.distributed.fingerprints import leaves_of
from pretrain.overrides import ConfigError
from pretrain.workdir.errors import DamagedCheckpoint, NotSaved, hush, writing
from pretrain.workdir.evidence import arrays_handler, reading, same_verdict
from pretrain.workdir.record import FILE, ITEMS, check_items, check_leaves, read_record, seal
from pretrain.workdir.retention import Retention

# ---- saving and restoring ----------------------------------------------------


class Checkpoints:
    """The checkpoints of a workdir. A context manager: leaving it waits until what was being written is committed."""

    def __init__(self, workdir, rule=None, read_only=False):
        """rule: a `parts.Checkpoint` that says which of them stay; None deletes nothing."""
        hush()
        self.workdir = epath.Path(workdir)
        if "://" not in str(workdir):
            self.workdir = epath.Path(
                os.path.abspath(workdir)
            )  # Orbax saves under absolute paths only
        self.retention = Retention(rule, self.workdir) if rule else None
        options = ocp.CheckpointManagerOptions(
            preservation_policy=self.retention,
            cleanup_tmp_directories=not read_only,
            read_only=read_only,
            create=not read_only,
        )
        handlers = {
            "params": arrays_handler(),
            "optimizer": arrays_handler(),
            "variables": arrays_handler(),
            "record": ocp.JsonCheckpointHandler(filename=FILE),
        }
        self.manager = ocp.CheckpointManager(
            self.workdir / "checkpoints", options=options, item_handlers=handlers
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            with writing(self.manager.directory):
                self.manager.close()
        except NotSaved:
            if error is None:  # else it is told already, or follows from what is
                raise

    def steps(self):
        """The committed steps, newest first."""
        return sorted(self.manager.all_steps(), reverse=True)

    def save(self, state, run, encoding, *, rows=None, origin=None, scores=None, counts=None):
        """Start saving a state; returns while it is being written, once the arrays may be donated.

        encoding: fingerprint of what the batches' numbers mean. rows: how many the run has read, of a mixture {part: number}: the next one is that of this number.
        counts: {"guard", "stopping": their records}, JSON-like; scores: {name: value} of the held-out part, where this very state was scored.
        """
        step = int(state.step)
        record = {
            "format": FORMAT,
            "step": step,
            "run": to_json(run),
            "encoding": encoding,
            "rows": rows or 0,
            "origin": origin,
            "scores": scores or {},
            "guard": {},
            "stopping": {},
            "params": leaves_of(state.params),
            "optimizer": leaves_of(state.optimizer),
            "variables": leaves_of(state.variables),
        } | (counts or {})
        items = {name: getattr(state, name) for name in ITEMS if record[name]}
        if self.retention:
            self.retention.learn(self.steps(), self.scores)
            self.retention.note(step, record["scores"])
        with writing(self.manager.directory):
            saved = self.manager.save(
                step,
                args=ocp.args.Composite(
                    **{name: ocp.args.StandardSave(tree) for name, tree in items.items()},
                    record=ocp.args.JsonSave(seal(record)),
                ),
            )
        if not saved:
            raise OSError(
                f"{self.workdir}/checkpoints/{step}: not saved; the newest step there is {self.manager.latest_step()}"
            )

    def check(self):
        """Raise what went wrong in the background, such as a full disk; costs nothing."""
        with writing(self.manager.directory):
            self.manager.check_for_errors()

    def wait(self):
        """Until everything is committed; raises what went wrong in the background."""
        with writing(self.manager.directory):
            self.manager.wait_until_finished()
        self.check()

    def record(self, step):
        """The record of a step. Raises DamagedCheckpoint where it is missing or altered, NotRestored where it cannot be read."""
        folder = self._folder(step)
        with reading(folder, {}):
            return read_record(folder)

    def scores(self, step):
        """The held-out scores in the record of a step; none where it is damaged, for then the step cannot be used either."""
        try:
            return self.record(step).get("scores", {})
        except (DamagedCheckpoint, ConfigError):
            return {}

    def restore(self, abstract, placed, encoding=None, report=print, before=None):
        """The newest good state, placed as `placed` says, or None where there is no checkpoint at all.

        abstract, placed: a State of shapes and one of shardings. before: of the steps before this one, or the oldest where there is none.
        Damaged steps are moved to <workdir>/damaged and reported.
        Raises ConfigError where the checkpoint is sound but of another model, optimizer or encoding, DamagedCheckpoint where
        there are checkpoints and none is sound, and NotRestored, before anything is moved, where one cannot be read for another cause.
        """
        steps = self.steps()
        if before is not None:
            steps = [step for step in steps if step < before] or steps[-1:]
        for step in steps:
            try:
                return self._restore_step(step, abstract, placed, encoding)
            except DamagedCheckpoint as error:
                report(
                    f"checkpoint {step} is damaged and is set aside in {self.workdir}/damaged: {error}"
                )
                self._set_aside(step)
        if steps:
            raise DamagedCheckpoint(
                f"{self.workdir}: none of the checkpoints {steps} is sound; they lie in damaged/"
            )
        return None

    def _restore_step(self, step, abstract, placed, encoding):
        with same_verdict():
            record = self.record(step)
            if encoding is not None and record["encoding"] != encoding:
                raise ConfigError(
                    f"{self.workdir}: checkpoint {step} was trained on data of another encoding (another vocabulary, or other labels) than the run's: "
                    f"fingerprint {encoding}, recorded {record['encoding']}"
                )
            target = jax.tree.map(_target, abstract, placed)
            names = check_items(record, abstract)
            items = self._read_arrays(step, record, {name: getattr(target, name) for name in names})
        self._compare(step, items, record)
        count = jax.device_put(np.asarray(step, np.int32), placed.step)
        zeros = jax.tree.map(_make_zeros, abstract.variables, placed.variables)
        return abstract.replace(step=count, **{"variables": zeros} | dict(items))

    def restore_params(self, step, place):
        """(record, parameters) of one step; `place(path, shape)` gives each parameter's sharding, None its default. Raises as `restore`."""
        with same_verdict():
            record = self.record(step)
            target = {}
            for path, (dtype, shape, _) in record["params"].items():
                node = target
                *parents, name = path.split("/")
                for parent in parents:
                    node = node.setdefault(parent, {})
                node[name] = jax.ShapeDtypeStruct(
                    tuple(shape), jnp.dtype(dtype), sharding=place(path, tuple(shape))
                )
            items = self._read_arrays(step, record, {"params": target})
        self._compare(step, items, record)
        return record, items["params"]

    def restore_optimizer(self, step, abstract):
        """Return the whole state of the optimizer of one step on the first device; abstract: a tree of its shapes. Raises as `restore`."""
        placed = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        with same_verdict():
            record = self.record(step)
            check_leaves(record["optimizer"], abstract, "optimizer's values")
            target = jax.tree.map(lambda leaf: _target(leaf, placed), abstract)
            items = self._read_arrays(step, record, {"optimizer": target})
        self._compare(step, items, record)
        return items["optimizer"]

    def _read_arrays(self, step, record, targets):
        """{item: its tree} by Orbax; targets: {item: tree of shapes and shardings}."""
        with reading(self._folder(step), {item: record[item] for item in targets}):
            return self.manager.restore(
                step,
                args=ocp.args.Composite(
                    **{item: ocp.args.StandardRestore(target) for item, target in targets.items()}
                ),
            )

    def _compare(self, step, items, record):
        """Raise DamagedCheckpoint where a leaf is not what was saved. The fingerprints are of whole arrays: all processes see the same."""
        for item in items:
            with reading(self._folder(step), {item: record[item]}):
                seen = leaves_of(items[item])
            for path, row in seen.items():
                if row != record[item][path]:
                    raise DamagedCheckpoint(
                        f"{path} is not what was saved (fingerprint {row[2]}, recorded {record[item][path][2]})"
                    )

    def _folder(self, step):
        return self.workdir / "checkpoints" / str(step)

    def _set_aside(self, step):
        if jax.process_index() == 0:
            aside = self.workdir / "damaged"
            aside.mkdir(exist_ok=True)
            names = (aside / (f"{step}" if not n else f"{step}.{n}") for n in range(1000))
            self._folder(step).rename(next(path for path in names if not path.exists()))
        self.manager.reload()


def _make_zeros(leaf, sharding):
    return jax.jit(partial(jnp.zeros, leaf.shape, leaf.dtype), out_shardings=sharding)()


def _target(leaf, sharding):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


# ---- for the other verbs -----------------------------------------------------


def read_run(workdir):
    """The configuration of a workdir. Raises FileNotFoundError where `workdir` is none."""
    path = epath.Path(workdir) / "config.json"
    if not path.exists():
        raise FileNotFoundError(
            f"{workdir}: not a workdir (it has no config.json); `train --workdir` and `import --workdir` make one"
        )
    return read_json(path)


def restore_params(workdir, step=None, place=None, report=print):
    """(run, step, parameters) of the newest good checkpoint of a workdir, or of `step`; float32 arrays in a nested dict.

    place(path, shape) -> sharding, by default the first device. Nothing in the workdir is changed.
    Raises FileNotFoundError where there is no such checkpoint, DamagedCheckpoint where there is no sound one, NotRestored where one
    cannot be read and nothing proves that it is damaged.
    """
    workdir = epath.Path(workdir)
    if not (workdir / "checkpoints").is_dir():
        raise FileNotFoundError(
            f"{workdir}: not a workdir (it has no checkpoints/); `train --workdir` and `import --workdir` make one"
        )
    place = place or (lambda path, shape: jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    with Checkpoints(workdir, read_only=True) as checkpoints:
        steps = checkpoints.steps()
        if step is not None and step not in steps:
            raise FileNotFoundError(
                f"{workdir}: no checkpoint of step {step}; there are {sorted(steps) or 'none'}"
            )
        for candidate in steps if step is None else [step]:
            try:
                record, params = checkpoints.restore_params(candidate, place)
                return (
                    from_json(record["run"], where=f"{workdir}, step {candidate}"),
                    candidate,
                    params,
                )
            except DamagedCheckpoint as error:
                if step is not None:
                    raise DamagedCheckpoint(
                        f"{workdir}: checkpoint {candidate} is damaged: {error}"
                    ) from error
                report(f"checkpoint {candidate} is damaged, taking the one before: {error}")
    if steps:
        raise DamagedCheckpoint(f"{workdir}: none of the checkpoints {sorted(steps)} is sound")
    raise FileNotFoundError(f"{workdir}: no checkpoint yet")
