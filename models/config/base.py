"""What the configurations of all models share. They are read without JAX, so that a program can check and print one in a moment.

Each family has a file of its own in this folder: one frozen dataclass, in the paper's numbers.
"""

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Config:
    """What `models.build` reads of any configuration.

    module: where its Linen module is, relative to `models`: `file:Class`. Named, not imported, as importing it imports JAX.
    """

    module: ClassVar[str]

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """A model that is pretrained: what every family has a number for.

    vocabulary_ids: fields that an id of the vocabulary fixes: {field: (role of the token, what is added to its id)}.
    keeps_state: whether the model keeps something of each row for the same row of the next batch. Its module names the Flax collections
    that it keeps as `collections`; they begin as zeros, and the batch's `is_continued` says for which rows they hold.
    """

    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {}
    keeps_state: ClassVar[bool] = False

    vocab: int  # [ids] rows of the table of token embeddings, at least as many as the vocabulary has ids
    width: int = 768  # of the hidden states
    depth: int = 12  # [layers]
    num_heads: int = 12  # attention heads of a layer
    mlp: int = 3072  # width of a feed-forward network's hidden layer
    dropout: float = 0.1  # rate, of embeddings and of what each sublayer adds
    epsilon: float = 1e-5  # added to the variance in each norm
    scan: bool = True  # compile one layer and scan over the stack, not every layer by itself
    remat: bool = False  # recompute activations in the backward pass, which saves memory

    @property
    def frozen_params(self) -> tuple[str, ...]:
        """The beginnings of the paths of parameters that no optimizer updates."""
        return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(ModelConfig):
    """A model that reads a text from both sides, with learned positions; a head can be put on it.

    head_activation: of the hidden layer that a head for whole rows brings with it; None where the encoder has a pooler.
    shares_layers: whether all layers are one. is_default: whether a head stands on it where no encoder is named.
    """

    head_activation: ClassVar[str | None] = None
    shares_layers: ClassVar[bool] = False
    is_default: ClassVar[bool] = False

    vocab: int = 30522
    length: int = 512  # [tokens] the longest row, as positions are learned
    segments: int = 2  # kinds of token_type_ids
    attention_dropout: float = 0.1  # rate, of the attention weights
    epsilon: float = 1e-12

    def as_encoder(self):
        """Return the configuration that a fine-tuned model has of it."""
        return self


def check(config):
    """Raise ValueError for a size below 1, a dropout rate outside of [0, 1), or an epsilon that is not positive.

    Only what is wrong by itself: fields are set one after the other, so how they fit together is checked by the model.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.type is int and value < 1:
            raise ValueError(f"{field.name} is {value}; it must be at least 1")
        if field.name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{field.name} is {value}; it must be at least 0 and below 1")
        if field.name == "epsilon" and not value > 0:
            raise ValueError(f"{field.name} is {value}; it must be positive")
