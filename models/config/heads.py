"""Fine-tuned models: an encoder that was pretrained, and a new head. As all of models/config, read without JAX."""

import dataclasses
import functools
import operator
from typing import TYPE_CHECKING, ClassVar, Literal

from models.config import find_configs
from models.config.base import Config, EncoderConfig

ENCODERS = tuple(kind for kind in find_configs() if issubclass(kind, EncoderConfig))

# Every encoder that has a file in this folder: what may stand in a configuration, for the checks that read annotations.
if TYPE_CHECKING:
    Encoder = EncoderConfig
else:
    Encoder = functools.reduce(operator.or_, ENCODERS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadedConfig(Config):
    """What every head stands on; a trainer reads of it what it reads of any model."""

    # The encoder that the head stands on.
    encoder: Encoder = dataclasses.field(
        default_factory=next(kind for kind in ENCODERS if kind.is_default)
    )
    dropout: float = 0.1  # of what the head reads

    vocab = property(lambda self: self.encoder.vocab)
    length = property(lambda self: self.encoder.length)
    num_heads = property(lambda self: self.encoder.num_heads)
    remat = property(lambda self: self.encoder.remat)
    frozen_params = property(lambda self: self.encoder.frozen_params)
    vocabulary_ids = property(lambda self: self.encoder.vocabulary_ids)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(HeadedConfig):
    """A score for each label, or the one of a regression where there are none."""

    module: ClassVar[str] = "heads.classifier:Classifier"

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerConfig(HeadedConfig):
    """A score for each tag at each token."""

    module: ClassVar[str] = "heads.tagger:Tagger"

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceConfig(HeadedConfig):
    """One score for each choice of a question, however many there are."""

    module: ClassVar[str] = "heads.multiple_choice:Chooser"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanReaderConfig(HeadedConfig):
    """Where the answer to a question begins and ends. BERT's own code drops nothing between the last layer and this head."""

    module: ClassVar[str] = "heads.question_answering:SpanReader"

    dropout: float = 0.0
    unanswerable: bool = False  # whether a context may have no answer, as in SQuAD 2.0
    # "No answer" is told where it scores above the best answer by more than this; None: by what is best for F1 on the held-out part.
    threshold: float | None = None
