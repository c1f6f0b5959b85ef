"""The sizes of the LSTM encoder-decoder."""

import dataclasses
from typing import ClassVar, Literal

from models.config.base import ModelConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seq2SeqLstmConfig(ModelConfig):
    """RNNsearch (Bahdanau et al. 2015, appendix A.2.3), whose gated units are LSTM cells here."""

    module: ClassVar[str] = "seq2seq_lstm:Seq2SeqLstm"
    not_in_tensors: ClassVar[tuple[str, ...]] = ("depth", "mlp")
    num_heads: ClassVar[int] = 1  # alignments of a step
    epsilon: ClassVar[float] = 0.0  # there is no norm

    vocab: int = 30_000
    width: int = 1000  # cells of each layer and direction
    embedding: int = 620  # width of source and target embeddings
    depth: int = 1  # [layers] of encoder and decoder each
    # order in which the encoder reads; backward: from the end (Sutskever et al. 2014)
    direction: Literal["forward", "backward", "bidirectional"] = "bidirectional"
    # attention score; additive: Bahdanau's, before each step; dot, general, concat: Luong's, after
    # it; none: no attention
    score: Literal["additive", "dot", "general", "concat"] | None = "additive"
    input_feeding: bool = True  # Luong's decoder also reads the previous attentional vector
    mlp: int = 1000  # hidden units of additive and concat scores
    dropout: float = 0.0  # rate of the embeddings, between layers, and before the logits
    scan: bool = False  # has no effect: positions are scanned, layers are not
    remat: bool = False  # recompute each decoder position in the backward pass, which saves memory
