"""Configuration of taggers: a pretrained encoder that gives each token a tag. No JAX."""

import dataclasses
from typing import ClassVar, Literal

from models.config.heads import HeadedConfig, check_two_directions


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerConfig(HeadedConfig):
    """A score for each tag at each token."""

    module: ClassVar[str] = "heads.tagger:Tagger"
    objectives: ClassVar[tuple[str, ...]] = ("tagging",)

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
