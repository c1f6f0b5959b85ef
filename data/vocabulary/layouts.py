"""Layouts of special tokens: which there are, and where they stand among the ids.

A layout has the name of the model that first had it, because stores and scripts call it so; any model may read a vocabulary of any
layout that has the tokens that it needs.
"""

DEFAULT = "bert"
# 100 of them behind the pieces: <extra_id_i> = V + 99 - i, as in the released T5 checkpoints.
WITH_SENTINELS = ("t5", "ul2")
# SentencePiece's options. V: the pieces of the model.
SENTENCEPIECE = {
    "bert": dict(
        pad_id=0, pad_piece="[PAD]", unk_id=1, unk_piece="[UNK]", bos_id=2, bos_piece="[CLS]", eos_id=3,
        eos_piece="[SEP]", control_symbols=["[MASK]"],
    ),
    "t5": dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "ul2": dict(
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, control_symbols=["[NLU]", "[NLG]", "[S2S]"]
    ),
    "gpt": dict(unk_id=0, eos_id=1, eos_piece="<|endoftext|>", bos_id=-1, pad_id=-1),
    "transformer": dict(pad_id=0, unk_id=1, eos_id=2, bos_id=-1),
}  # fmt: skip
# Byte BPE: tokens before the pieces, and behind them.
DEFAULT_OF_BYTES = "roberta"
BYTE_BPE = {
    "roberta": (("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",)),
    "gpt2": ((), ("<|endoftext|>",)),
}
# By the algorithm that trains a vocabulary.
LAYOUTS = {
    **dict.fromkeys(("unigram", "bpe"), tuple(SENTENCEPIECE)),
    "byte_bpe": tuple(BYTE_BPE),
}
HELP = (
    "special pieces: bert's [PAD] [UNK] [CLS] [SEP] [MASK] (default), t5's <pad> </s> <unk> and 100 sentinels, ul2's, "
    "which are t5's with the mode tokens [NLU] [NLG] [S2S], or gpt's <unk> <|endoftext|>, or transformer's <pad> <unk> </s>; of bytes, roberta's <s> <pad> </s> <unk> <mask>, or gpt2's <|endoftext|>"
)
