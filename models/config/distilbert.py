"""The sizes of DistilBERT."""

import dataclasses
from typing import ClassVar, Self

from models.config.base import TEACHER, EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistilBertConfig(EncoderConfig):
    """DistilBERT, distilled from BERT-base; its teacher shares all sizes but `depth`."""

    module: ClassVar[str] = "distilbert:DistilBert"
    head_activation: ClassVar[str | None] = "relu"

    segments: int = 2  # number of token types
    depth: int = 6  # [layers] of the student
    teacher_depth: int | None = 12  # [layers] of the teacher; none: no teacher

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher_depth is not None and self.teacher_depth < 1:
            raise ValueError(
                f"teacher_depth is {self.teacher_depth}; it must be at least 1, or none"
            )

    @property
    def frozen_params(self) -> tuple[str, ...]:
        """Path prefixes of the teacher's parameters."""
        return (TEACHER,) if self.teacher_depth else ()

    def as_encoder(self) -> Self:
        """Return the configuration of the student alone."""
        return dataclasses.replace(self, teacher_depth=None)
