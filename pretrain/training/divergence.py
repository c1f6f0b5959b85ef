"""Steps that would do harm: skipped on the devices, counted on the host, and left behind where there are many in a row.

Skipped is one step at a time, in the step itself: `is_finite_step` looks at the loss and the norm of the gradients, and `tree_where` keeps every
bit of the parameters and of the optimizer's state, its count of updates included. So moments, bias correction and learning rate are
those of the updates that were made; the step's number alone goes on, and with it the data.

Left behind is a window of them by `Guard`: parameters and moments come from the checkpoint before the window, the number stays that of
its last step. Thus the data remain a function of the step and of nothing else, as does the order of a run that is resumed later; no
step's number is ever used twice, in checkpoints, metrics or dropout; and the learning rate goes on with the updates that remain.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax


class Diverged(ArithmeticError):
    """Every step is skipped, and going back has not helped."""


# ---- in the step -------------------------------------------------------------


class Norms(NamedTuple):
    """The mean of the gradient norms of the steps taken, and how many there were, both scalars."""

    mean: jax.Array
    taken: jax.Array


def track_norms(norm_window):
    """An optax transformation that changes no gradient and keeps `Norms`: the mean of all, from `norm_window` of them on an exponential one."""

    def update(updates, state, params=None):
        taken = state.taken + 1
        share = 1.0 / jnp.minimum(taken, norm_window).astype(jnp.float32)
        return updates, Norms(state.mean + (optax.tree.norm(updates) - state.mean) * share, taken)

    return optax.GradientTransformation(
        lambda params: Norms(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)), update
    )


def is_finite_step(loss, norm, optimizer, norm_factor, norm_window):
    """Return whether a step is taken, a bool scalar: its loss and gradient norm are finite, and the norm no spike.

    optimizer: its state, with the `Norms` of the steps taken; norm_factor, norm_window: of `schema.Guard`.
    """
    is_finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    if not norm_factor:
        return is_finite
    norms = optax.tree.get(optimizer, Norms.__name__)
    return is_finite & ((norms.taken < norm_window) | (norm <= norm_factor * norms.mean))


def tree_where(condition, new, old):
    """Return the tree `new` where the condition holds, else `old`, to the bit."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def update_count(optimizer, step):
    """Return how many updates were made, which is where the learning rate stands; `step` for an optimizer that does not count them."""
    counts = optax.tree_utils.tree_get_all_with_path(optimizer, "count")
    return counts[0][1] if counts else step


# ---- in the loop -------------------------------------------------------------


class Guard:
    """Counts skipped steps, and says when to go back. All processes of a run see the same metrics, so they agree.

    patience: of `schema.Guard`; resumed: what `record` gave when the checkpoint was saved that the run goes on from.
    """

    def __init__(self, patience, resumed):
        self.patience = patience
        # The skipped steps in a row, up to `step`, the last step whose metrics are known.
        self.skipped = resumed.get("skipped", 0)
        self.returned = resumed.get(
            "returned", False
        )  # went back, and has saved no good step since
        self.step: int | None = None
        self.good = False  # whether `step` was taken

    def check(self, row):
        """Look at the metrics of a step, a row of the log; None where none have arrived."""
        if row is not None:
            self.step, self.good = row["step"], not row["skipped"]
            self.skipped = 0 if self.good else self.skipped + 1

    @property
    def tripped(self):
        return self.skipped >= self.patience

    def first_skipped(self):
        """Return the first step of the window. Raises Diverged where it is of no use to go back once more."""
        if self.returned:
            self._give_up()
        assert self.step is not None  # it has tripped, so steps were seen
        return self.step - self.skipped + 1

    def note_restored(self):
        """Note that the state is that of a checkpoint before the window."""
        self.skipped, self.returned = 0, True

    def check_end(self):
        """The last step is done. Raises Diverged where the run ends in a whole window, or in one for the like of which it had gone back."""
        if self.tripped or (self.skipped and self.returned):
            self._give_up()

    def _give_up(self):
        assert self.step is not None  # skipped steps were seen
        before = ", as were those for which the run went back before" if self.returned else ""
        raise Diverged(
            f"steps {self.step - self.skipped + 1:,} to {self.step:,} were skipped, for their loss or gradients are not finite or too "
            f"large{before}. The checkpoints are of the steps before. Look at the data (`inspect`), or try a lower "
            f"optimizer.learning_rate, a longer warmup, optimizer.max_grad_norm or guard.norm_factor, in a new workdir or with --allow-changes"
        )

    def record(self):
        """Return what a checkpoint must record for a run that goes on from it."""
        self.returned = self.returned and not self.good
        return {"skipped": self.skipped, "returned": self.returned}
