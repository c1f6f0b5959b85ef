"""Configuration of embedders: a pretrained encoder that gives each text one vector. No JAX."""

import dataclasses
from typing import ClassVar, Literal

from models.config.heads import HeadedConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedderConfig(HeadedConfig):
    """A vector for each text (Reimers and Gurevych 2019, Sentence-BERT)."""

    module: ClassVar[str] = "heads.embedder:Embedder"
    objectives: ClassVar[tuple[str, ...]] = ("contrastive", "similarity", "teacher_vectors")

    dropout: float = 0.0  # rate of the vectors
    # what the vector is: the mean of the states of all tokens, or the state of one
    pooling: Literal["mean", "cls", "last"] = "mean"
    normalize: bool = True  # vectors of length 1 in `embed` and in exports
    temperature: float = 0.05  # cosines are divided by it in a softmax
    learn_temperature: bool = False  # it is a parameter, which begins at `temperature`
    # texts whose activations are in memory at once (GradCache); none: all of the batch
    texts_at_once: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder.characters:
            raise ValueError(
                f"a {type(self.encoder).__name__} reads words by their characters, and an embedder "
                "reads ids; use another encoder"
            )
        if self.encoder.is_causal and self.pooling == "cls":
            raise ValueError(
                f"pooling=cls: a {type(self.encoder).__name__} reads from left to right, so its "
                "first state has seen one token; use last or mean"
            )
        if self.texts_at_once is not None and self.texts_at_once < 1:
            raise ValueError(f"texts_at_once is {self.texts_at_once}; it must be at least 1")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature:g}; it must be above 0")
