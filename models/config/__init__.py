"""What is chosen when a model is built: one frozen dataclass a paper, in the paper's numbers, without JAX.

A program can so read, check and print a configuration in a moment. Each field is read by its own paper's module alone.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """BERT-base; `width` is the paper's hidden size H, `depth` its L, `heads` its A. Large: 1024, 24, 16, mlp 4096."""

    vocab: int = 30522
    length: int = 512  # the longest row: positions are learned
    segments: int = 2
    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-12
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class DistilBertConfig:
    """DistilBERT, of BERT-base; all but `depth` is as its teacher's."""

    vocab: int = 30522
    length: int = 512
    segments: int = 2  # of the teacher
    width: int = 768
    depth: int = 6
    teacher_depth: int | None = 12  # None: no teacher, as in an imported one
    heads: int = 12
    mlp: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-12
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)
        if self.teacher_depth is not None and self.teacher_depth < 1:
            raise ValueError(
                f"teacher_depth is {self.teacher_depth}; it must be at least 1, or none"
            )


@dataclasses.dataclass(frozen=True)
class RobertaConfig:
    """RoBERTa-base; the names are BERT's. Large: 1024, 24, 16, mlp 4096."""

    vocab: int = 50265
    length: int = 512  # the longest row, <s> and </s> included
    first_position: int = 2  # the number of a row's first position: behind the padding's id, which is 1 in its vocabulary
    segments: int = 1  # no word is told from another by its segment: all add the same vector
    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-5
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """ALBERT-base; `embedding` is the paper's E, `width` its H. Large: 1024, 24, 16, mlp 4096; xlarge: 2048, 24, 32, 8192.

    xxlarge: 4096, 12, 64, 16384.
    """

    vocab: int = 30000
    length: int = 512
    segments: int = 2
    embedding: int = 128  # the width of a word's vector
    width: int = 768  # of a layer
    depth: int = 12  # how often the one layer is applied
    heads: int = 12
    mlp: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-12
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class ElectraConfig:
    """ELECTRA-base. Small: embedding 128, 256, 12, 4, mlp 1024, generator 64, 1, 256; large: 1024, 1024, 24, 16, 4096, 256, 4, 1024.

    The generator is as deep as the discriminator, and narrower: a third or a quarter of its width, heads and mlp (table 6).
    """

    vocab: int = 30522
    length: int = 512
    segments: int = 2
    embedding: int = 768  # the width of a word's vector, which both networks read
    width: int = 768  # of the discriminator
    depth: int = 12  # of both
    heads: int = 12
    mlp: int = 3072
    generator_width: int = 256
    generator_heads: int = 4
    generator_mlp: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-12
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class T5Config:
    """T5-base; `width` is the paper's d_model, `mlp` its d_ff, `head_width` its d_kv. v1.1: gated, untied, mlp 2048."""

    vocab: int = 32128
    width: int = 768
    depth: int = 12
    decoder_depth: int = 12
    heads: int = 12
    head_width: int = 64
    mlp: int = 3072
    gated: bool = False  # v1.1: a gated GELU where v1.0 has a ReLU
    tied: bool = True  # v1.1: the output has a table of its own
    buckets: int = 32
    max_distance: int = 128
    dropout: float = 0.1
    epsilon: float = 1e-6
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The base model of English-German; `width` is the paper's d_model, `mlp` its d_ff. Big: 1024, heads 16, mlp 4096, dropout 0.3."""

    vocab: int = 37000
    width: int = 512
    depth: int = 6
    decoder_depth: int = 6
    heads: int = 8
    mlp: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0  # the paper has none
    epsilon: float = 1e-5
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class BartConfig:
    """BART-base; the names are T5's and RoBERTa's. Large: 1024, 12, 12, heads 16, mlp 4096."""

    vocab: int = 50265
    length: int = 1024  # the longest row on either side, <s> and </s> included
    first_position: int = (
        2  # the number of a row's first position: behind the padding's id, as RoBERTa's
    )
    start: int = (
        2  # the id that a decoder reads before the first one of a target: </s> in its vocabulary
    )
    width: int = 768
    depth: int = 6
    decoder_depth: int = 6
    heads: int = 12
    mlp: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.0  # the paper names none
    epsilon: float = 1e-5
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class GptConfig:
    """GPT's one size, 116.5 M parameters; `length` is the longest row: positions are learned."""

    vocab: int = 40478
    length: int = 512
    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-5
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class Gpt2Config:
    """The smallest GPT-2. Medium: 1024, 24, 16, mlp 4096; large: 1280, 36, 20, 5120; XL: 1600, 48, 25, 6400."""

    vocab: int = 50257
    length: int = 1024
    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-5
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class Gpt3Config:
    """GPT-3 Small; `width` is the paper's d_model, `mlp` four times that. configs/gpt3_*.py have the other seven sizes.

    The paper gives no width of a band: 256 is what GPT-Neo, a public replication, took (Black et al. 2021).
    """

    vocab: int = 50257
    length: int = 2048
    width: int = 768
    depth: int = 12  # even: dense and banded layers take turns
    heads: int = 12
    mlp: int = 3072
    window: int = 256  # positions that a banded layer reads, the reader's own included
    dropout: float = 0.0  # the paper states none
    attention_dropout: float = 0.0
    epsilon: float = 1e-5
    scan: bool = True
    remat: bool = False

    def __post_init__(self):
        check(self)


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
