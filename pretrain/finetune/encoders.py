"""Which pretrained models a head can be added to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from models.config.base import EncoderConfig
from models.config.heads import ENCODERS
from pretrain.families import find_family

if TYPE_CHECKING:
    from pretrain.inference.trained import Trained

NAMES = ", ".join(kind.__name__ for kind in ENCODERS)


def find_encoder_config(pretrained: Trained) -> Any:
    """Return the configuration of the encoder of a pretrained or a fine-tuned run.

    Raises:
      ValueError: if it has none; names the models that have one.
    """
    model = getattr(pretrained.run.model, "encoder", pretrained.run.model)
    if not isinstance(model, EncoderConfig):
        raise ValueError(
            f"{pretrained.workdir} is a run of a {type(model).__name__}; a head needs one of "
            f"{NAMES}"
        )
    return model.as_encoder()


def count_separators(encoder: EncoderConfig) -> int:
    """Return the number of [SEP]s between two texts."""
    return find_family(encoder).num_separators
