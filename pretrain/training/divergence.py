"""Harmful steps are skipped on the devices; after many in a row the run returns to a checkpoint.

Skipping concerns one step and happens in the training step itself: `is_finite_step` looks at the
loss and the gradient norm, and `tree_where` keeps the old parameters and optimizer state bit for
bit, the count of updates included. So moments, bias correction and learning rate follow the
updates that were made. Only the step number advances, and with it the data.

Returning to a checkpoint concerns a window of skipped steps and is decided by `DivergenceMonitor`:
parameters and moments come from the checkpoint before the window, and the step number stays at
the last step of the window. So the data remain a function of the step alone, also for a run that is
resumed later; no step number is used twice in checkpoints, metrics or dropout keys; and the
learning rate continues with the updates that remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import optax


class Diverged(ArithmeticError):
    """Steps are still skipped after the run has returned to a checkpoint."""


# ---- in the training step ----------------------------------------------------


class Norms(NamedTuple):
    """The running mean of the gradient norms, float32, and the number of steps taken, int32."""

    mean: jax.Array
    taken: jax.Array


def track_norms(norm_window: int) -> optax.GradientTransformation:
    """Return a transformation that leaves gradients unchanged and tracks their `Norms`.

    The mean covers all steps, and from `norm_window` steps on an exponential moving average.
    """

    def update_norms(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, Any]:
        taken = state.taken + 1
        share = 1.0 / jnp.minimum(taken, norm_window).astype(jnp.float32)
        return updates, Norms(state.mean + (optax.tree.norm(updates) - state.mean) * share, taken)

    return optax.GradientTransformation(
        lambda params: Norms(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)), update_norms
    )


def is_finite_step(
    loss: jax.Array,
    norm: jax.Array,
    optimizer: optax.OptState,
    norm_factor: float,
    norm_window: int,
) -> jax.Array:
    """Return whether a step is taken, a bool scalar.

    A step is taken if its loss and its gradient norm are finite and the norm is not a spike.

    Args:
      optimizer: the optimizer's state, with `Norms` unless `norm_factor` is 0.
      norm_factor: as in `schema.Guard`.
      norm_window: as in `schema.Guard`.
    """
    is_finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    if not norm_factor:
        return is_finite
    norms = optax.tree.get(optimizer, Norms.__name__)
    return is_finite & ((norms.taken < norm_window) | (norm <= norm_factor * norms.mean))


def tree_where(condition: jax.Array, new: Any, old: Any) -> Any:
    """Return the tree `new` if the scalar `condition` is True, else the tree `old`, bit for bit."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def count_updates(optimizer: optax.OptState, step: jax.Array) -> jax.Array:
    """Return the number of updates so far; `step` if the optimizer's state has no count."""
    counts = optax.tree_utils.tree_get_all_with_path(optimizer, "count")
    return counts[0][1] if counts else step


# ---- in the loop -------------------------------------------------------------


class DivergenceMonitor:
    """Counts skipped steps in a row and decides when to return to a checkpoint.

    All processes of a run see the same metrics, so they make the same decision.

    Attributes:
      patience: number of skipped steps in a row after which the guard trips.
      num_skipped: number of skipped steps in a row up to `step`.
      has_gone_back: whether the run has returned to a checkpoint and saved no good step since.
      step: the last step whose metrics are known; 0 before any are.
      is_good_step: whether `step` was taken.
    """

    def __init__(self, patience: int, resumed: Mapping[str, Any]) -> None:
        """Begin with the counts of a checkpoint.

        Args:
          patience: as in `schema.Guard`.
          resumed: what `make_record` returned when that checkpoint was saved, or {}.
        """
        self.patience = patience
        self.num_skipped = resumed.get("skipped", 0)
        self.has_gone_back = resumed.get("returned", False)
        self.step = 0
        self.is_good_step = False

    def check(self, row: Mapping[str, Any] | None) -> None:
        """Count the step of `row`, the metrics of a step; None is ignored."""
        if row is not None:
            self.step, self.is_good_step = row["step"], not row["skipped"]
            self.num_skipped = 0 if self.is_good_step else self.num_skipped + 1

    @property
    def has_tripped(self) -> bool:
        """Whether the window is full and its last step is known, which was of this start."""
        return self.step > 0 and self.num_skipped >= self.patience

    def find_first_skipped(self) -> int:
        """Return the first step of the window of skipped steps.

        Raises:
          Diverged: the run has returned to a checkpoint before, and steps are skipped again.
        """
        if self.has_gone_back:
            self._give_up()
        return self.step - self.num_skipped + 1

    def note_restored(self) -> None:
        """Note that the state now comes from a checkpoint before the window."""
        self.num_skipped, self.has_gone_back = 0, True

    def check_end(self) -> None:
        """Raise Diverged if the run ends in a full window, or in any window after a return."""
        if self.has_tripped or (self.num_skipped and self.has_gone_back):
            self._give_up()

    def _give_up(self) -> NoReturn:
        before = ", as were the steps that made it return before" if self.has_gone_back else ""
        raise Diverged(
            f"steps {self.step - self.num_skipped + 1:,} to {self.step:,} were skipped because "
            f"their loss or gradients are not finite or too large{before}. The checkpoints are "
            "from before these steps. Inspect the data (`inspect`), or try a lower "
            "optimizer.learning_rate, a longer warmup, optimizer.max_grad_norm or "
            "guard.norm_factor, in a new workdir or with --allow-changes"
        )

    def make_record(self) -> dict[str, Any]:
        """Return the counts that a checkpoint must record for a run that resumes from it."""
        self.has_gone_back = self.has_gone_back and not self.is_good_step
        return {"skipped": self.num_skipped, "returned": self.has_gone_back}
