"""The base of every model: what trainers, losses and readers ask of one."""

from typing import Any, ClassVar

import flax.linen as nn

from models.layers.ops import PLAIN, Ops


class Model(nn.Module):
    """A model that `models.build` makes of its configuration.

    A subclass makes its parts in `setup`. Its methods take keys of a batch as arguments:
    `compute_states` returns what a loss reads, and `__call__` uses all parameters.

    config: its sizes, of models/config.
    ops: the operations that a trainer replaces.
    encodes: whether `encode(token_ids, attention_mask)` returns the states of whole rows. Else
      `compute_states(token_ids)` returns states that depend on the tokens up to their own.
    decodes: whether `decode` writes a second text of what `encode` returns, as in
      `models.layers.encoder_decoder`.
    carried: Flax collections of what the model passes from a row to the same row of the next batch,
      where its configuration's `keeps_state` is true.
    logits_method: the method that makes the logits for a loss of the result of `compute_states`.
    """

    encodes: ClassVar[bool] = False
    decodes: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = ()
    logits_method: ClassVar[str] = "compute_logits"

    config: Any
    ops: Ops = PLAIN

    @property
    def collections(self) -> tuple[str, ...]:
        """The collections that this model carries from one batch to the next."""
        return self.carried if self.config.keeps_state else ()
