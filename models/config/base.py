"""The base classes of all model configurations.

They need no JAX, so that a program can check and print one quickly. Each family has a file of its
own in this folder: one frozen dataclass, with the paper's numbers.
"""

import dataclasses
from typing import Any, ClassVar, Literal, Self

TEACHER = "teacher/"  # path prefix of the parameters of a trained model, from which another learns


@dataclasses.dataclass(frozen=True)
class Config:
    """A configuration that `models.build` accepts.

    module: its Linen module relative to `models`, as `file:Class`. It is a name, because importing
      the module would import JAX.
    zero_fields: fields of whole numbers that may be 0.
    vocabulary_ids: fields that depend on the vocabulary: {field: (role of a token, number to add to
      that token's id)}.
    mixes_positions: whether keys are mixtures of all positions of a row. Then no position can be
      hidden from another, as in causal models and packed rows.
    has_attention: whether the layers attend. A model that does not has no heads.
    characters: characters per word that the model reads; 0: it reads ids.
    length: [tokens] the longest row; None: rows may have any length.
    labels: names of the classes or tags that a head scores; None: the model has no such head.
    scheme: how the tags of a head encode entities; "": the model has no tags.
    start: id of the decoder's first input.
    is_causal: whether each token reads those before it alone. A head that scores whole rows then
      reads the last token, and has no bias.
    shares_layers: whether all layers have the same parameters.
    frozen: whether fine-tuning leaves the pretrained parameters as they are.
    """

    module: ClassVar[str]
    zero_fields: ClassVar[tuple[str, ...]] = ()
    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {}
    mixes_positions: ClassVar[bool] = False
    has_attention: ClassVar[bool] = True
    characters: ClassVar[int] = 0
    length: ClassVar[Any] = None
    labels: ClassVar[Any] = None
    scheme: ClassVar[Any] = ""
    start: ClassVar[int] = 0
    is_causal: ClassVar[bool] = False
    shares_layers: ClassVar[bool] = False
    frozen: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_sizes(self)

    @property
    def backbone(self) -> Any:
        """The pretrained part: the encoder of a fine-tuned model, else the model itself."""
        return self

    @property
    def num_outputs(self) -> int:
        """The number of scores of a head, or 2."""
        return 2

    @property
    def keeps_state(self) -> bool:
        """Whether the model carries a state from each row to the same row of the next batch.

        Its module lists the Flax collections of that state as `carried`. They are initialised with
        zeros, and are valid for the rows where the batch's `is_continued` is True.
        """
        return False

    @property
    def predicts_patches(self) -> bool:
        """Whether the model predicts the mean colors of masked patches, and no classes."""
        return False

    @property
    def frozen_params(self) -> tuple[str, ...]:
        """Path prefixes of the parameters that no optimizer updates."""
        return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """A model that can be pretrained, with the fields that every family has.

    not_in_tensors: sizes that are no dimension of a parameter, such as a longest distance.
    """

    not_in_tensors: ClassVar[tuple[str, ...]] = ()

    vocab: int  # [ids] rows of the token embeddings, at least as many as the vocabulary has ids
    width: int = 768  # width of the hidden states
    depth: int = 12  # [layers] height of the stack
    num_heads: int = 12  # attention heads of a layer
    mlp: int = 3072  # width of a feed-forward network's hidden layer
    dropout: float = 0.1  # rate after the embeddings and each sublayer
    epsilon: float = 1e-5  # added to the variance in each norm
    scan: bool = True  # compile one layer and scan over the stack
    remat: bool = False  # recompute activations in the backward pass, which saves memory

    @property
    def depths(self) -> tuple[int, ...]:
        """The layers of each stack, in the order of the computation: encoder, then decoder."""
        return (self.depth,)

    @property
    def least_vocab(self) -> int:
        """The smallest vocabulary with which the other sizes fit."""
        return 1


class TakesHead:
    """A model on which a fine-tuning head can be put.

    head_activation: of the hidden layer of a head that scores whole rows; None where the head has
      none.
    transforms_states: whether heads read hidden states through the model's own `transform`, which
      pretraining has trained.
    pools_late: whether a head that scores whole rows averages its hidden layer over the tokens.
    layers_per_block: layers that are one entry of the stack.
    is_default: whether it is the encoder of a fine-tuned model by default.
    """

    head_activation: ClassVar[str | None] = None
    transforms_states: ClassVar[bool] = False
    pools_late: ClassVar[Any] = False
    layers_per_block: ClassVar[int] = 1
    is_default: ClassVar[bool] = False

    def as_encoder(self) -> Self:
        """Return the configuration of this model in a fine-tuned one."""
        return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecoderConfig(TakesHead, ModelConfig):
    """A causal decoder, which predicts the next token."""

    is_causal: ClassVar[bool] = True
    segments: ClassVar[int] = 1  # number of token types


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(TakesHead, ModelConfig):
    """A bidirectional encoder. Its `head_activation` is None where it has a pooler."""

    vocab: int = 30522
    length: int = 512  # [tokens] the longest row, special tokens included
    segments: int = 2  # number of token types
    attention_dropout: float = 0.1  # rate of the attention weights
    epsilon: float = 1e-12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pixels(Config):
    """The values of a pixel, from 0 to 1, and how they are normalised: (x - mean) / std."""

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)  # of each channel: red, green, blue; or brightness
    std: tuple[float, ...] = (0.5, 0.5, 0.5)  # of each channel

    def __post_init__(self) -> None:
        super().__post_init__()
        if not len(self.mean) == len(self.std) > 0:
            raise ValueError(
                f"mean has {len(self.mean)} values and std {len(self.std)}; both need one for each "
                "channel"
            )
        if min(self.std) <= 0:
            raise ValueError(f"std is {self.std}; all values must be positive")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageConfig(Config):
    """A model that classifies images. It reads their pixels, and has no vocabulary.

    Its module has `compute_states(pixels, train)` of uint8 [B, H, W, C], H = W = `image_size`,
    C = `channels`.
    """

    image_size: int = 224  # [pixels] height and width of an image
    classes: int = 1000  # classes that the head scores, at least as many as the data has
    # The channels of an image, and how the model normalises them.
    pixels: Pixels = dataclasses.field(default_factory=Pixels)

    @property
    def channels(self) -> int:
        """The number of values of a pixel."""
        return len(self.pixels.mean)

    @property
    def num_positions(self) -> int:
        """The number of positions to which most of the weights apply."""
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchConfig(ImageConfig):
    """A Transformer whose tokens are the patches of an image.

    not_in_tensors: sizes that are no dimension of a parameter.
    """

    not_in_tensors: ClassVar[tuple[str, ...]] = ("image_size",)

    patch_size: int = 16  # [pixels] height and width of a patch; it divides `image_size`
    width: int = 768  # width of the hidden states
    depth: int = 12  # [layers] height of the stack
    num_heads: int = 12  # attention heads of a layer
    mlp: int = 3072  # width of a feed-forward network's hidden layer
    qkv_bias: bool = True  # queries, keys and values have biases
    dropout: float = 0.0  # rate after the embeddings and the linear maps, except q, k and v
    attention_dropout: float = 0.0  # rate of the attention weights
    # rate at which a row skips a sublayer in the last layer, rising linearly from 0
    path_dropout: float = 0.0
    epsilon: float = 1e-12  # added to the variance in each norm
    scan: bool = True  # compile one layer and scan over the stack
    remat: bool = False  # recompute activations in the backward pass, which saves memory

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size % self.patch_size:
            raise ValueError(
                f"patch_size={self.patch_size} does not divide image_size={self.image_size}: an "
                "image must be a whole number of patches high and wide"
            )

    @property
    def grid_size(self) -> int:
        """The number of patches along each side of an image."""
        return self.image_size // self.patch_size

    @property
    def depths(self) -> tuple[int, ...]:
        """The layers of the one stack."""
        return (self.depth,)

    @property
    def num_tokens(self) -> int:
        """The number of learned tokens before the patches."""
        return 1

    @property
    def num_positions(self) -> int:
        """The number of tokens and patches."""
        return self.num_tokens + self.grid_size**2


def check_sizes(config: Config) -> None:
    """Raise ValueError for a size below 1, a dropout rate outside [0, 1), or an epsilon <= 0.

    Each field is checked alone, because fields are set one after the other. The model checks how
    they fit together.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        least = 0 if field.name in config.zero_fields else 1
        if field.type is int and value < least:
            raise ValueError(f"{field.name} is {value}; it must be at least {least}")
        if field.name == "epsilon" and not value > 0:
            raise ValueError(f"{field.name} is {value}; it must be positive")
        if field.name.endswith("dropout") and value is not None and not 0 <= value < 1:
            raise ValueError(f"{field.name} is {value}; it must be at least 0 and below 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordEncoderConfig(TakesHead, Config):
    """An encoder of words that no objective pretrains: it is trained with its head.

    It reads the words of a row alone: the special tokens around texts are left out, as padding is.
    Its class has what a head reads of any encoder. No position is learned, so that rows may have
    any length.
    """

    vocabulary_ids: ClassVar[dict[str, tuple[str, int]]] = {
        "cls_id": ("cls", 0),
        "sep_id": ("sep", 0),
    }
    zero_fields: ClassVar[tuple[str, ...]] = ("cls_id", "sep_id")
    has_attention: ClassVar[bool] = False
    num_heads: ClassVar[int] = 1
    segments: ClassVar[int] = 1
    remat: ClassVar[bool] = False

    vocab: int = 30522  # [ids] rows of the word embeddings
    width: int = 300  # width of the word embeddings
    dropout: float = 0.0  # rate of the word embeddings
    # trained word embeddings: "non-static" all; "static" none, for pretrained vectors;
    # "multichannel" one of two that are added
    channels: Literal["non-static", "static", "multichannel"] = "non-static"
    cls_id: int = 2  # id of [CLS], which the encoder skips
    sep_id: int = 3  # id of [SEP], which the encoder skips

    @property
    def frozen_params(self) -> tuple[str, ...]:
        """Path prefixes of the parameters that no optimizer updates."""
        return ("embeddings/static_embedding/",) if self.channels != "non-static" else ()
