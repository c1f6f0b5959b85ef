"""Configuration of span readers: a pretrained encoder that finds answers in a text. No JAX."""

import dataclasses
from typing import ClassVar

from models.config.heads import HeadedConfig, check_two_directions


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanReaderConfig(HeadedConfig):
    """The first and last token of the answer to a question.

    BERT's own code has no dropout between the last layer and this head.
    """

    module: ClassVar[str] = "heads.question_answering:SpanReader"
    objectives: ClassVar[tuple[str, ...]] = ("answer_span",)

    dropout: float = 0.0
    unanswerable: bool = False  # a context may have no answer, as in SQuAD 2.0
    # answer nothing if its score exceeds the best answer's by more; none: the threshold with the
    # best held-out F1
    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_two_directions(self.encoder, "an answer")
