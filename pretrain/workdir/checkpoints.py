"""Checkpoints: Orbax writes and reads them; this layer says whether what was read is what was written.

Orbax restores flipped bits, another dtype and a half-fitting tree without a word (measured: 60 of 60 flips in random weights). So each
checkpoint carries, beside its arrays, a record of every leaf (dtype, shape, fingerprint) with the configuration and the vocabulary's
fingerprint, and nothing is handed out that does not agree with it. A damaged checkpoint is set aside and the one before it is used.

    checkpoints/<step>/{params,optimizer}  arrays      checkpoints/<step>/record  JSON
"""

import json
import os
from functools import partial

import google_crc32c
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from pretrain.config import from_json, read_json, to_json
from pretrain.distributed.fingerprints import leaves_of
from pretrain.distributed.sharding import path_of
from pretrain.overrides import ConfigError
from pretrain.workdir.check import build_folder
from pretrain.workdir.errors import DamagedCheckpoint, NotSaved, damage, hush, writing
from pretrain.workdir.retention import Retention

VERSION = 1


# ---- the record --------------------------------------------------------------


def _seal(record):
    text = json.dumps(record, sort_keys=True)
    return {"record": record, "crc32c": google_crc32c.value(text.encode())}


def _unseal(sealed):
    record = sealed.get("record") if isinstance(sealed, dict) else None
    if not isinstance(record, dict) or _seal(record)["crc32c"] != sealed.get("crc32c"):
        raise DamagedCheckpoint("its record does not agree with its own checksum")
    if record["version"] != VERSION:
        raise ConfigError(
            f"checkpoint version {record['version']}: this Cloze reads version {VERSION}"
        )
    return record


def _agree(recorded, tree, what):
    """Raise ConfigError where the leaves that were saved are not those of `tree`: the model or the optimizer is another."""
    expected = {
        path_of(keys): [str(leaf.dtype), list(leaf.shape)]
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    for path in sorted(expected.keys() | recorded.keys()):
        saved = recorded[path][:2] if path in recorded else "absent"
        wanted = expected.get(path, "absent")
        if saved != wanted:
            raise ConfigError(
                f"the checkpoint's {what} do not fit this configuration: {path} was saved as {saved}, needed is {wanted}"
            )


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
            "params": ocp.StandardCheckpointHandler(),
            "optimizer": ocp.StandardCheckpointHandler(),
            "record": ocp.JsonCheckpointHandler(),
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

    def save(self, state, run, vocabulary, origin=None, guard=None, scores=None):
        """Start saving a state; returns while it is being written, once the arrays may be donated.

        guard: its record, JSON-like; scores: {name: value} of the held-out part, where this very state was scored.
        """
        step = int(state.step)
        record = {
            "version": VERSION,
            "step": step,
            "run": to_json(run),
            "vocabulary": vocabulary,
            "origin": origin,
            "guard": guard or {},
            "scores": scores or {},
            "params": leaves_of(state.params),
            "optimizer": leaves_of(state.optimizer),
        }
        if self.retention:
            self.retention.learn(self.steps(), self.scores)
            self.retention.note(step, record["scores"])
        with writing(self.manager.directory):
            saved = self.manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave(state.params),
                    optimizer=ocp.args.StandardSave(state.optimizer),
                    record=ocp.args.JsonSave(_seal(record)),
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
        """The record of a step. Raises DamagedCheckpoint where there is none that can be read."""
        with damage():
            sealed = self.manager.restore(
                step, args=ocp.args.Composite(record=ocp.args.JsonRestore())
            )["record"]
        return _unseal(sealed)

    def scores(self, step):
        """The held-out scores in the record of a step; none where it cannot be read, for then the step cannot be used either."""
        try:
            return self.record(step).get("scores", {})
        except (DamagedCheckpoint, ConfigError):
            return {}

    def restore(self, abstract, placed, vocabulary=None, report=print, before=None):
        """The newest good state, placed as `placed` says, or None where there is no checkpoint at all.

        abstract, placed: a State of shapes and one of shardings. before: of the steps before this one, or the oldest where there is none.
        Damaged steps are moved to <workdir>/damaged and reported.
        Raises ConfigError where the checkpoint is sound but of another model, optimizer or vocabulary, and DamagedCheckpoint where
        there are checkpoints and none is sound.
        """
        steps = self.steps()
        if before is not None:
            steps = [step for step in steps if step < before] or steps[-1:]
        for step in steps:
            try:
                return self._restore_step(step, abstract, placed, vocabulary)
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

    def _restore_step(self, step, abstract, placed, vocabulary):
        record = self.record(step)
        if vocabulary is not None and record["vocabulary"] != vocabulary:
            raise ConfigError(
                f"{self.workdir}: checkpoint {step} was trained with another vocabulary than the token store's"
            )
        _agree(record["params"], abstract.params, "parameters")
        _agree(record["optimizer"], abstract.optimizer, "optimizer's values")
        target = jax.tree.map(_target, abstract, placed)
        with damage():
            items = self.manager.restore(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardRestore(target.params),
                    optimizer=ocp.args.StandardRestore(target.optimizer),
                ),
            )
        _compare(items["params"], record["params"])
        _compare(items["optimizer"], record["optimizer"])
        count = jax.device_put(np.asarray(step, np.int32), placed.step)
        return abstract.replace(step=count, params=items["params"], optimizer=items["optimizer"])

    def restore_params(self, step, place):
        """(record, parameters) of one step; `place(path, shape)` gives each parameter's sharding, None its default."""
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
        with damage():
            params = self.manager.restore(
                step, args=ocp.args.Composite(params=ocp.args.StandardRestore(target))
            )["params"]
        _compare(params, record["params"])
        return record, params

    def _set_aside(self, step):
        if jax.process_index() == 0:
            aside = self.workdir / "damaged"
            aside.mkdir(exist_ok=True)
            names = (aside / (f"{step}" if not n else f"{step}.{n}") for n in range(1000))
            (self.workdir / "checkpoints" / str(step)).rename(
                next(path for path in names if not path.exists())
            )
        self.manager.reload()


def _target(leaf, sharding):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _compare(tree, recorded):
    for path, row in leaves_of(tree).items():
        if row != recorded[path]:
            raise DamagedCheckpoint(
                f"{path} is not what was saved (fingerprint {row[2]}, recorded {recorded[path][2]})"
            )


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
    Raises FileNotFoundError where there is no such checkpoint, DamagedCheckpoint where there is no sound one.
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


def start_workdir(workdir, run, params, vocabulary, origin=None):
    """Make a workdir whose step 0 holds the given parameters, ready for `train`, `evaluate`, `predict` and `export`.

    origin: a JSON-like note on where the parameters come from, kept as origin.json. The folder appears whole or not at all.
    Raises FileExistsError where `workdir` is there and not empty, or another process fills it meanwhile.
    """
    from pretrain.training.optimizers import optimizer_of
    from pretrain.training.state import start

    with build_folder(workdir) as part:
        (part / "config.json").write_text(to_json(run))
        vocabulary.save(str(part / "vocabulary"))
        if origin is not None:
            (part / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
        state = jax.jit(partial(start, optimizer=optimizer_of(run)))(params)
        with Checkpoints(part, run.checkpoint) as checkpoints:
            checkpoints.save(state, run, vocabulary.fingerprint, origin)
            checkpoints.wait()
