"""The losses of the objectives: sums over targets, and the weights that divide them at the end.

A mean of means over microbatches or devices would weight rows by how few targets they have. So
nothing here divides: sums are added up over microbatches, devices and evaluation batches alike, in
float32.

Each objective of `data.objectives` has a module of the same name here, which defines its `LOSS`.
"""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from data.mixed import Mixed
from data.objectives.objective import Objective
from pretrain.training.losses.loss import DEFAULT_OPTIONS, Batch, Loss, LossOptions, LossOutput

__all__ = ["DEFAULT_OPTIONS", "Loss", "LossOptions", "MixedLoss", "find_loss", "make_loss"]


class MixedLoss(NamedTuple):
    """The loss of a mixture: the weighted sum of the losses of its parts.

    The loss of a part is the mean over its own targets, so its influence does not depend on the
    number of targets of its rows. The names of the sums are `PART/sum`.

    It has the attributes and methods of `Loss` that training and evaluation use. A batch is
    {part: {key: array}}.

    Attributes:
      parts: {part: its loss}.
      part_weights: {part: factor of its loss}.
    """

    parts: Mapping[str, Loss]
    part_weights: Mapping[str, float]

    @property
    def loss_terms(self) -> tuple[str, ...]:
        return tuple(
            f"{name}/{term}" for name, loss in self.parts.items() for term in loss.loss_terms
        )

    def compute_loss(self, means: Mapping[str, Any]) -> Any:
        """Return the loss from {`PART/sum`: mean}."""
        return sum(
            self.part_weights[name]
            * loss.compute_loss({term: means[f"{name}/{term}"] for term in loss.loss_terms})
            for name, loss in self.parts.items()
        )

    def sum_weights(self, batch: Mapping[str, Batch]) -> dict[str, jax.Array]:
        """Return {`PART/sum`: weight of the whole batch}, float32."""
        return self.merge_parts(
            {name: loss.sum_weights(batch[name]) for name, loss in self.parts.items()}
        )

    def count_tokens(self, batch: Mapping[str, Batch]) -> Any:
        """Return the number of tokens read and written without padding, a float32 scalar."""
        return sum(loss.count_tokens(batch[name]) for name, loss in self.parts.items())

    def merge_parts(self, by_part: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return {`PART/name`: value} of {part: {name: value}}."""
        return {
            f"{part}/{name}": value for part in by_part for name, value in by_part[part].items()
        }

    def sum_batch(
        self, model: Any, params: Any, batch: Mapping[str, Batch], **options: Any
    ) -> dict[str, jax.Array]:
        """Return {`PART/sum`: float32 sum}; the arguments are as for `compute_batch`."""
        return self.compute_batch(model, params, batch, **options).sums

    def compute_batch(
        self,
        model: Any,
        params: Any,
        batch: Mapping[str, Batch],
        *,
        train: bool = False,
        dropout_key: jax.Array | None = None,
        options: LossOptions = DEFAULT_OPTIONS,
        variables: Mapping[str, Any] | None = None,
    ) -> LossOutput:
        """Return the sums of a batch, as `Loss.compute_batch`.

        Each part has its own dropout key. `variables` is ignored: the rows of a mixture do not
        continue the previous batch's.
        """
        sums = {}
        for i, (name, loss) in enumerate(self.parts.items()):
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, i)
            sums[name] = loss.sum_batch(
                model, params, batch[name], train=train, dropout_key=key, options=options
            )
        return LossOutput(self.merge_parts(sums), None, {})


def find_loss(name: str) -> Loss:
    """Return the loss of the objective `name` with its default settings: `LOSS` of its module."""
    return importlib.import_module(f"{__name__}.{name}").LOSS


def configure_loss(objective: Objective) -> Loss:
    """Return the loss of an objective's settings."""
    loss = find_loss(objective.name)
    return loss.configure(objective) if loss.configure else loss


def make_loss(objective: Objective | Mixed) -> Loss | MixedLoss:
    """Return the loss of an objective or of a mixture of objectives."""
    if not isinstance(objective, Mixed):
        return configure_loss(objective)
    losses = {part.name: configure_loss(part.objective) for part in objective.parts}
    return MixedLoss(losses, objective.compute_loss_weights())
