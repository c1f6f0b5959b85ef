"""Configurations of fine-tuned models: a pretrained encoder and a new head. No JAX."""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
    """The base of fine-tuned models, with the properties that a trainer reads of any model."""

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(HeadedConfig):
    """A score for each label, or the one score of a regression without labels."""

    module: ClassVar[str] = "heads.classifier:Classifier"

    labels: tuple[str, ...] = ("0", "1")  # names of the classes, in the order of the logits

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) == 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(
                f"labels are {self.labels}; there must be at least two, all different, or none for "
                "a regression"
            )

    @property
    def num_outputs(self) -> int:
        """The number of scores."""
        return len(self.labels) or 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerConfig(HeadedConfig):
    """A score for each tag at each token."""

    module: ClassVar[str] = "heads.tagger:Tagger"

    labels: tuple[str, ...] = ("O", "B", "I")  # names of the tags, in the order of the logits
    scheme: Literal["bio", "iob1", "iobes", "bilou", "plain"] = "bio"  # how tags encode entities

    def __post_init__(self) -> None:
        super().__post_init__()
        check_two_directions(self.encoder, "a tag")
        if len(set(self.labels)) < max(len(self.labels), 2):
            raise ValueError(
                f"labels are {self.labels}; there must be at least two tags, all different"
            )

    @property
    def num_outputs(self) -> int:
        """The number of scores of a token."""
        return len(self.labels)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceConfig(HeadedConfig):
    """One score for each choice of a question; the number of choices is free."""

    module: ClassVar[str] = "heads.multiple_choice:Chooser"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanReaderConfig(HeadedConfig):
    """The first and last token of the answer to a question.

    BERT's own code has no dropout between the last layer and this head.
    """

    module: ClassVar[str] = "heads.question_answering:SpanReader"

    dropout: float = 0.0
    unanswerable: bool = False  # a context may have no answer, as in SQuAD 2.0
    # answer nothing if its score exceeds the best answer's by more; none: the threshold with the
    # best held-out F1
    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_two_directions(self.encoder, "an answer")


def check_two_directions(encoder: Config, score: str) -> None:
    """Raise ValueError unless each state depends on the tokens after it too.

    score: what the head scores at each token, for the message.
    """
    if encoder.is_causal:
        raise ValueError(
            f"a {type(encoder).__name__} reads from left to right: {score} at a token would not "
            "depend on the tokens after it. Use an encoder, or a task that scores whole texts"
        )
