"""Fine-tuned models: an encoder that was pretrained, and a new head. As in models/config/__init__.py, these are sizes alone, read without JAX."""

import dataclasses
from typing import Literal

from models.config import (
    AlbertConfig,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    RobertaConfig,
    check,
)

Encoder = BertConfig | RobertaConfig | AlbertConfig | ElectraConfig | DistilBertConfig


@dataclasses.dataclass(frozen=True)
class HeadedConfig:
    """What every head stands on; a trainer reads of it what it reads of any model."""

    encoder: Encoder = dataclasses.field(default_factory=BertConfig)
    dropout: float = 0.1  # of what the head reads

    def __post_init__(self):
        check(self)

    vocab = property(lambda self: self.encoder.vocab)
    length = property(lambda self: self.encoder.length)
    heads = property(lambda self: self.encoder.heads)
    remat = property(lambda self: self.encoder.remat)


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(HeadedConfig):
    """A score for each label, or the one of a regression where there are none."""

    labels: tuple[str, ...] = ("0", "1")  # the names of the classes, in the order of the logits

    def __post_init__(self):
        super().__post_init__()
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(
                f"labels are {self.labels}; they are two at least, all different, or none for a score"
            )

    @property
    def outputs(self):
        return len(self.labels) or 1


@dataclasses.dataclass(frozen=True)
class TaggerConfig(HeadedConfig):
    """A score for each tag at each token."""

    labels: tuple[str, ...] = ("O", "B", "I")  # the names of the tags, in the order of the logits
    scheme: Literal["bio", "iob1", "iobes", "bilou", "plain"] = (
        "bio"  # how they spell entities: data/examples/tag_schemes.py
    )

    def __post_init__(self):
        super().__post_init__()
        if len(set(self.labels)) < max(len(self.labels), 2):
            raise ValueError(f"labels are {self.labels}; they are two tags at least, all different")

    @property
    def outputs(self):
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class ChoiceConfig(HeadedConfig):
    """One score for each choice of a question, however many there are."""


@dataclasses.dataclass(frozen=True)
class SpanReaderConfig(HeadedConfig):
    """Where the answer to a question begins and ends. BERT's own code drops nothing between the last layer and this head."""

    dropout: float = 0.0
    unanswerable: bool = False  # whether a context may have no answer, as in SQuAD 2.0
    # "No answer" is told where it scores above the best answer by more than this; None: by what is best for F1 on the held-out part.
    threshold: float | None = None
