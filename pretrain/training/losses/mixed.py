"""The loss of a mixture of objectives: the parts' losses, each times its weight, added up.

A part's loss is the mean over its own targets, so how much it counts does not depend on how many targets its rows happen to have.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from pretrain.training.losses.base import DEFAULT_OPTIONS, Computed, Loss, LossOptions


class MixedLoss(NamedTuple):
    """The losses of the parts of a mixture, by name, and what each is multiplied by. Its sums are called `PART/sum`.

    It has what a `Loss` has, as far as a step and an evaluation ask for it; a batch is {part: {key: array}}.
    """

    parts: Mapping[str, Loss]
    part_weights: Mapping[str, float]

    @property
    def loss_terms(self) -> tuple[str, ...]:
        return tuple(
            f"{name}/{term}" for name, loss in self.parts.items() for term in loss.loss_terms
        )

    def value(self, means):
        """Return the loss, of {`PART/sum`: mean}."""
        return sum(
            self.part_weights[name]
            * loss.value({term: means[f"{name}/{term}"] for term in loss.loss_terms})
            for name, loss in self.parts.items()
        )

    def totals(self, batch):
        """Return {`PART/sum`: the weight of the whole batch}, float32."""
        return self.merge({name: loss.totals(batch[name]) for name, loss in self.parts.items()})

    def count_tokens(self, batch):
        """Return how many tokens the model reads and writes, a float32 scalar."""
        return sum(loss.count_tokens(batch[name]) for name, loss in self.parts.items())

    def merge(self, by_part):
        """Return {`PART/name`: value} of {part: {name: value}}."""
        return {
            f"{part}/{name}": value for part in by_part for name, value in by_part[part].items()
        }

    def sums(self, model, params, batch, **options):
        """Return {`PART/sum`: float32 sum}, as `compute` does."""
        return self.compute(model, params, batch, **options).sums

    def compute(
        self,
        model,
        params,
        batch,
        *,
        train: bool = False,
        dropout_key: jax.Array | None = None,
        options: LossOptions = DEFAULT_OPTIONS,
        variables: Mapping[str, Any] | None = None,
    ) -> Computed:
        """Return what a batch gives. Each part drops by a key of its own; a model that keeps a state begins each batch anew."""
        sums = {}
        for number, (name, loss) in enumerate(self.parts.items()):
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, number)
            sums[name] = loss.sums(
                model, params, batch[name], train=train, dropout_key=key, options=options
            )
        return Computed(self.merge(sums), None, {})
