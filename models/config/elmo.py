"""The sizes of ELMo."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import EncoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElmoConfig(EncoderConfig):
    """The original model, of 4,096 cells and 512 projections: 93.6 M parameters and its targets."""

    module: ClassVar[str] = "elmo:Elmo"
    has_attention: ClassVar[bool] = False
    not_in_tensors: ClassVar[tuple[str, ...]] = ("characters", "samples")
    unk_id: ClassVar[int] = 1  # of the target [UNK], as in each vocabulary of words
    zero_fields: ClassVar[tuple[str, ...]] = ("samples", "highways")
    # Sizes that other code reads of any model; an LSTM has no attention, feed-forward networks,
    # norms or learned positions.
    length: ClassVar[int] = 1 << 20
    segments: ClassVar[int] = 1
    num_heads: ClassVar[int] = 1
    mlp: ClassVar[int] = 0
    epsilon: ClassVar[float] = 0.0
    attention_dropout: ClassVar[float] = 0.0

    # [ids] words that are predicted, the first of the vocabulary; others count as [UNK] there
    vocab: int = 793_471
    width: int = 512  # of a word, and of each direction's projected output
    depth: int = 2  # [layers] of each direction
    cells: int = 4096  # of each layer and direction
    characters: int = 50  # [characters] read per word, its two ends included
    character_width: int = 16  # of a character's embedding
    # (window, number) of the filters over characters
    character_filters: tuple[tuple[int, int], ...] = (
        *((1, 32), (2, 32), (3, 64), (4, 128)),
        *((5, 256), (6, 512), (7, 1024)),
    )
    highways: int = 2  # [layers] after the filters
    activation: Literal["relu", "tanh"] = "relu"  # of the filters' maxima
    clip: float = 3.0  # cells and projected outputs are limited to [-clip, clip]
    residual: bool = True  # layers above the first add their input to their output
    # words that the sampled softmax of a training step draws by rank; 0: full softmax
    samples: int = 0
    frozen: bool = False  # fine-tune only the mix of layers
    scan: bool = False  # has no effect: positions are scanned, layers are not
    remat: bool = False  # has no effect

    def __post_init__(self) -> None:
        super().__post_init__()
        filters, windows = self.character_filters, [window for window, _ in self.character_filters]
        if not windows or len(set(windows)) < len(windows) or min(map(min, filters)) < 1:
            raise ValueError(
                f"character_filters are {filters}: pairs of a window and a number are expected, "
                "each window once"
            )
        if max(windows) > self.characters:
            raise ValueError(
                f"character_filters: a window of {max(windows)} is wider than the "
                f"{self.characters} characters of a word (characters)"
            )
        if not self.clip > 0:
            raise ValueError(f"clip is {self.clip}; it must be positive")

    @property
    def keeps_state(self) -> bool:
        """True: each row begins with the states after the row before it."""
        return True

    @property
    def frozen_params(self) -> tuple[str, ...]:
        """Path prefixes of the parameters that no optimizer updates."""
        return ("words/", "bilm/") if self.frozen else ()

    def as_encoder(self) -> "ElmoConfig":
        """Return the configuration in a fine-tuned model: only the mix is learned (section 3.3)."""
        return dataclasses.replace(self, frozen=True)
