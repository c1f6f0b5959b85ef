"""Checkpoints of a workdir: Orbax writes and reads them, and this module verifies what was read.

Orbax restores flipped bits, another dtype and a partly fitting tree without an error (measured: 60
of 60 flips in random weights). So each checkpoint contains a record of every leaf (dtype, shape,
fingerprint), of the configuration, and of the fingerprint of the data's encoding
(`data.source.Encoding`). Nothing is returned that does not agree with the record. A checkpoint that
is proven damaged (evidence.py) is moved to damaged/, and the previous one is used. Any other failed
read raises its own error and moves nothing.

    checkpoints/<step>/{params,optimizer}  arrays and inventory.json
    checkpoints/<step>/variables           the model's state between steps, if it has any
    checkpoints/<step>/record              JSON
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax
import numpy as np
from etils import epath

from pretrain.config import Run
from pretrain.mesh.replica_check import fingerprint_leaves
from pretrain.settings import Checkpoint
from pretrain.settings.overrides import ConfigError
from pretrain.workdir import orbax_manager
from pretrain.workdir.checkpoint_record import (
    ITEMS,
    SavedState,
    check_items,
    compare_leaves,
    find_ema,
    make_record,
    read_record,
    seal_record,
)
from pretrain.workdir.errors import DamagedCheckpoint, NotRestored, NotSaved, translate_write_errors
from pretrain.workdir.evidence import diagnose_read_errors, share_failures
from pretrain.workdir.retention import Retention


class Checkpoints:
    """The checkpoints of a workdir. A context manager: leaving it waits until all are committed."""

    def __init__(
        self, workdir: epath.PathLike, rule: Checkpoint | None = None, read_only: bool = False
    ) -> None:
        """Open the checkpoints; rule: which of them stay, None deletes nothing."""
        self.workdir = epath.Path(workdir)
        if "://" not in str(workdir):  # Orbax saves to absolute paths only
            self.workdir = epath.Path(os.path.abspath(workdir))
        self.retention = Retention(rule, self.workdir) if rule else None
        self.manager = orbax_manager.open_manager(
            self.workdir / "checkpoints", self.retention, read_only
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            with translate_write_errors(self.manager.directory):
                self.manager.close()
        except NotSaved:
            if error is None:  # otherwise it was raised already, or follows from `error`
                raise

    def list_steps(self) -> list[int]:
        """Return the committed steps, newest first."""
        return sorted(self.manager.all_steps(), reverse=True)

    def save(
        self,
        state: SavedState,
        run: Run,
        encoding: str,
        *,
        rows: int | Mapping[str, int] | None = None,
        origin: Any = None,
        scores: Mapping[str, float] | None = None,
        counts: Mapping[str, Any] | None = None,
    ) -> None:
        """Start saving a state; return while it is being written, once the arrays may be donated.

        Args:
          encoding: fingerprint of the data's encoding.
          rows: number of rows that the run has read; of a mixture {part: number}.
          origin: where the first parameters come from, JSON.
          scores: {name: value} of the held-out part, if it was evaluated with this very state.
          counts: {"guard": JSON, "stopping": JSON}, records of the guard and of early stopping.
        """
        step = int(state.step)
        record = make_record(state, run, encoding, rows or 0, origin, scores or {}, counts or {})
        items = {name: getattr(state, name) for name in ITEMS if record[name]}
        if self.retention:
            self.retention.update_scores(self.list_steps(), self.load_scores)
            self.retention.record_scores(step, record["scores"])
        with translate_write_errors(self.manager.directory):
            saved = orbax_manager.save_items(self.manager, step, items, seal_record(record))
        if not saved:
            raise OSError(
                f"{self.workdir}/checkpoints/{step}: not saved; the newest step there is "
                f"{self.manager.latest_step()}"
            )

    def check_errors(self) -> None:
        """Raise NotSaved if a write failed in the background, such as on a full disk."""
        with translate_write_errors(self.manager.directory):
            self.manager.check_for_errors()

    def wait_until_saved(self) -> None:
        """Wait until everything is committed; raise NotSaved as `check_errors` does."""
        with translate_write_errors(self.manager.directory):
            self.manager.wait_until_finished()
        self.check_errors()

    def load_record(self, step: int) -> dict[str, Any]:
        """Return the record of a step.

        Raises DamagedCheckpoint if it is missing or altered, NotRestored if it cannot be read.
        """
        folder = self._locate_step(step)
        with diagnose_read_errors(folder, {}):
            return read_record(folder)

    def load_scores(self, step: int) -> dict[str, float]:
        """Return the held-out scores in the record of a step; {} if it is unusable or deleted.

        Raises NotRestored if it is there and cannot be read.
        """
        try:
            return self.load_record(step).get("scores", {})
        except (DamagedCheckpoint, ConfigError):
            return {}
        except NotRestored:
            if self._locate_step(step).is_dir():
                raise
            return {}

    def restore_state(
        self,
        abstract: SavedState,
        shardings: SavedState,
        encoding: str | None = None,
        report: Callable[[str], Any] = print,
        before_step: int | None = None,
    ) -> Any:
        """Return the newest sound state, or None if there is no checkpoint at all.

        Damaged steps are moved to <workdir>/damaged and reported.

        Args:
          abstract, shardings: a state of shapes and dtypes, and one of shardings.
          encoding: the fingerprint that the checkpoint's encoding must have; None accepts any.
          before_step: considers only earlier steps, or the oldest step if there is no earlier one.

        Raises:
          ConfigError: the checkpoint is of another model, optimizer or encoding.
          DamagedCheckpoint: there are checkpoints, and all are damaged.
          NotRestored: one cannot be read for another reason; nothing was moved.
        """
        steps = self.list_steps()
        if before_step is not None:
            steps = [step for step in steps if step < before_step] or steps[-1:]
        for step in steps:
            try:
                return self.restore_step(step, abstract, shardings, encoding)
            except DamagedCheckpoint as error:
                report(
                    f"checkpoint {step} is damaged and is set aside in {self.workdir}/damaged: "
                    f"{error}"
                )
                self._set_aside(step)
        if steps:
            raise DamagedCheckpoint(
                f"{self.workdir}: none of the checkpoints {steps} is sound; they are in damaged/"
            )
        return None

    def restore_step(
        self, step: int, abstract: SavedState, shardings: SavedState, encoding: str | None
    ) -> Any:
        """Return the state of a step as `restore_state` does; nothing is moved."""
        with share_failures():
            record = self.load_record(step)
            if encoding is not None and record["encoding"] != encoding:
                raise ConfigError(
                    f"{self.workdir}: checkpoint {step} was trained on data of another encoding "
                    "(another vocabulary, or other labels) than the run's: fingerprint "
                    f"{encoding}, recorded {record['encoding']}"
                )
            target = jax.tree.map(orbax_manager.make_target, abstract, shardings)
            names = check_items(record, abstract)
            items = self._read_arrays(step, record, {name: getattr(target, name) for name in names})
        self._check_fingerprints(step, items, record)
        count = jax.device_put(np.asarray(step, np.int32), shardings.step)
        zeros = jax.tree.map(orbax_manager.make_zeros, abstract.variables, shardings.variables)
        return abstract.replace(step=count, **{"variables": zeros} | dict(items))

    def restore_params(
        self, step: int, choose_sharding: orbax_manager.Place
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (record, parameters) of a step; raise as `restore_state`."""
        with share_failures():
            record = self.load_record(step)
            target = orbax_manager.make_tree_target(record["params"], choose_sharding)
            items = self._read_arrays(step, record, {"params": target})
        self._check_fingerprints(step, items, record)
        return record, items["params"]

    def restore_ema(
        self, step: int, choose_sharding: orbax_manager.Place
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (record, moving average of the parameters) of a step.

        The moments of the optimizer are not read. Raises ConfigError if the run keeps no average,
        otherwise as `restore_state`.
        """
        with share_failures():
            record = self.load_record(step)
            leaves, norms = find_ema(self.workdir, record)
            target: Any = {"ema": orbax_manager.make_tree_target(leaves, choose_sharding)}
            if norms:  # Orbax skips keys of a dictionary, but no item of a sequence.
                target = [
                    {name: np.zeros(leaf[1], leaf[0]) for name, leaf in norms.items()},
                    target,
                ]
            folder = self._locate_step(step)
            with diagnose_read_errors(folder, {"optimizer": record["optimizer"]}):
                part = orbax_manager.restore_part(folder / "optimizer", target)
        item = part[1] if norms else part
        self._check_fingerprints(step, item, {"ema": leaves})
        return record, item["ema"]

    def _read_arrays(self, step: int, record: dict[str, Any], targets: dict[str, Any]) -> Any:
        """Return {item: tree}; targets: {item: tree of shapes, dtypes and shardings}."""
        recorded = {item: record[item] for item in targets}
        with diagnose_read_errors(self._locate_step(step), recorded):
            return orbax_manager.restore_items(self.manager, step, targets)

    def _check_fingerprints(self, step: int, items: Any, record: dict[str, Any]) -> None:
        """Raise DamagedCheckpoint if a leaf of `items`, {item: tree}, is not what was saved.

        Fingerprints are of whole arrays, so all processes find the same.
        """
        for item in items:
            with diagnose_read_errors(self._locate_step(step), {item: record[item]}):
                leaves = fingerprint_leaves(items[item])
            compare_leaves(leaves, record[item])

    def _locate_step(self, step: int) -> epath.Path:
        return self.workdir / "checkpoints" / str(step)

    def _set_aside(self, step: int) -> None:
        """Move the folder of a damaged step to damaged/, by process 0, and let Orbax list again.

        The other processes wait, as they would list the step otherwise and save no later one.
        """
        with share_failures():
            if jax.process_index() == 0:
                orbax_manager.move_aside(self._locate_step(step), self.workdir / "damaged")
        self.manager.reload()
