"""The base of fine-tuned models: a pretrained encoder and a new head. No JAX."""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from models.config import find_configs
from models.config.base import Config, TakesHead

LIMITLESS = 1 << 20  # [tokens] the longest row of a model whose positions are not learned

# Any encoder with a file in this folder.
if TYPE_CHECKING:
    Encoder = Any  # of the fields and properties that all kinds have
else:
    Encoder = TakesHead


def make_default_encoder() -> Any:
    """Return the encoder of a fine-tuned model by default, in its default sizes."""
    kinds = (kind for kind in find_configs() if issubclass(kind, TakesHead) and kind.is_default)
    return next(kinds)()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadedConfig(Config):
    """The base of fine-tuned models, with the properties that a trainer reads of any model.

    objectives: names of the objectives that train it.
    """

    objectives: ClassVar[tuple[str, ...]]

    # The pretrained encoder.
    encoder: Encoder = dataclasses.field(default_factory=make_default_encoder)
    dropout: float = 0.1  # rate of the head's input

    backbone = property(lambda self: self.encoder)
    vocab = property(lambda self: self.encoder.vocab)
    length = property(lambda self: self.encoder.length or LIMITLESS)
    num_heads = property(lambda self: self.encoder.num_heads)
    remat = property(lambda self: self.encoder.remat)
    characters: ClassVar[Any] = property(lambda self: self.encoder.characters)
    frozen_params = property(
        lambda self: tuple(f"encoder/{prefix}" for prefix in self.encoder.frozen_params)
    )
    vocabulary_ids: ClassVar[Any] = property(lambda self: self.encoder.vocabulary_ids)


def check_two_directions(encoder: Config, score: str) -> None:
    """Raise ValueError unless each state depends on the tokens after it too.

    score: what the head scores at each token, for the message.
    """
    if encoder.is_causal:
        raise ValueError(
            f"a {type(encoder).__name__} reads from left to right: {score} at a token would not "
            "depend on the tokens after it. Use an encoder, or a task that scores whole texts"
        )
