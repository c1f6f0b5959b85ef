"""Layouts: the special tokens of trained vocabularies and their ids.

A layout has the name of the model that introduced it, which stores and scripts use. Any model can
read a vocabulary of any layout that has the special tokens it needs.
"""

from typing import Any

DEFAULT_LAYOUT = "bert"
# These have 100 sentinels after the pieces: <extra_id_i> = V + 99 - i, as the released T5 models.
LAYOUTS_WITH_SENTINELS = ("t5", "ul2")
# {layout: options of the SentencePiece trainer}. V is the number of pieces of the model.
SENTENCEPIECE_LAYOUTS = {
    "bert": dict(
        pad_id=0, pad_piece="[PAD]", unk_id=1, unk_piece="[UNK]", bos_id=2, bos_piece="[CLS]",
        eos_id=3, eos_piece="[SEP]", control_symbols=["[MASK]"],
    ),
    "t5": dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "ul2": dict(
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, control_symbols=["[NLU]", "[NLG]", "[S2S]"]
    ),
    "gpt": dict(unk_id=0, eos_id=1, eos_piece="<|endoftext|>", bos_id=-1, pad_id=-1),
    "transformer": dict(pad_id=0, unk_id=1, eos_id=2, bos_id=-1),
}  # fmt: skip
# {layout: (special tokens before the learned ones, special tokens after them)} of byte-level BPE.
WORD_LEVEL_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")  # of a vocabulary of whole words
DEFAULT_BYTE_BPE_LAYOUT = "roberta"
BYTE_BPE_LAYOUTS = {
    "roberta": (("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",)),
    "gpt2": ((), ("<|endoftext|>",)),
}
# {algorithm that trains a vocabulary: its layouts}.
LAYOUTS = {
    **dict.fromkeys(("unigram", "bpe"), tuple(SENTENCEPIECE_LAYOUTS)),
    "byte_bpe": tuple(BYTE_BPE_LAYOUTS),
    "words": (DEFAULT_LAYOUT,),  # without its [MASK]
}
# {class of a tokenizer of `transformers`, without a final "Fast": what it reads}. SentencePiece's
# unigram models are read in three ways: as they are, after quotes, accents and case are folded, or
# after NFC.
TOKENIZERS = {
    **dict.fromkeys(("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"), "wordpiece"),
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer", "GPT2Tokenizer"), "byte_bpe"),
    "OpenAIGPTTokenizer": "word_bpe",
    "T5Tokenizer": "unigram",
    "AlbertTokenizer": "folded_unigram",
    "DebertaV2Tokenizer": "nfc_unigram",
    "EsmTokenizer": "residues",
    "MarianTokenizer": "other",
    # These read a tokenizer.json as it is.
    **dict.fromkeys(("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"), ""),
}
# {model_type of `transformers`: what the tokenizer reads if its class is not named}.
MODEL_TOKENIZERS = {
    **dict.fromkeys(("bert", "distilbert", "electra"), "wordpiece"),
    **dict.fromkeys(("roberta", "bart", "gpt2"), "byte_bpe"),
    "openai-gpt": "word_bpe",
    "t5": "unigram",
    "albert": "folded_unigram",
    "deberta-v2": "nfc_unigram",
    "esm": "residues",
    "marian": "other",
}
UNKNOWN = "<unk>"
# {name of an alphabet: its tokens in the order of their ids}.
ALPHABETS = {
    # Lin et al. 2023: by frequency in UniRef, then the letters for several or for rare residues.
    "esm2": (
        *("<cls>", "<pad>", "<eos>", UNKNOWN, *"LAGVSERTIDPKQNFYMHWCXBUZO.-"),
        *("<null_1>", "<mask>"),
    ),
    # ESM Team 2024: as ESM-2's, with a break between chains.
    "esmc": (
        *("<cls>", "<pad>", "<eos>", UNKNOWN, *"LAGVSERTIDPKQNFYMHWCXBUZO.-|"),
        "<mask>",
    ),
    # N is any nucleotide.
    "nucleotides": ("<cls>", "<pad>", "<eos>", UNKNOWN, *"ACGTN", "<mask>"),
    # Lower case marks repeats, where `--soft-mask keep` leaves it.
    "soft_nucleotides": ("<cls>", "<pad>", "<eos>", UNKNOWN, *"ACGTNacgtn", "<mask>"),
}
# {tokens of an alphabet: the class of `transformers` that has just these}.
OWN_CLASSES = {ALPHABETS["esmc"]: "EsmcTokenizer"}
# {whether tokens of letters overlap: the class that reads their vocab.txt}.
LETTER_CLASSES = {False: "EsmTokenizer", True: "BertTokenizer"}
BY_LETTER = ("esmc",)  # names of alphabets in which each unknown letter is one token
LEAST_COVERAGE = 0.98  # of characters; the SentencePiece library refuses less
LAYOUT_HELP = (
    "special tokens: bert: [PAD] [UNK] [CLS] [SEP] [MASK] (default); t5: <pad> </s> <unk> and "
    "100 sentinels; ul2: as t5, and the mode tokens [NLU] [NLG] [S2S]; gpt: <unk> "
    "<|endoftext|>; transformer: <pad> <unk> </s>; with byte_bpe roberta: <s> <pad> </s> <unk> "
    "<mask>, or gpt2: <|endoftext|>"
)


def check_training(algorithm: str, options: dict[str, Any]) -> None:
    """Raise ValueError for options of SentencePiece that are not valid, or set for another kind.

    Args:
      options: `character_coverage`, `byte_fallback` and `split_digits`, or some of them.
    """
    used = [name for name, value in options.items() if value not in (None, False)]
    if used and algorithm not in ("unigram", "bpe"):
        raise ValueError(
            f"--{used[0].replace('_', '-')} with --algorithm {algorithm}: for unigram and bpe; "
            "bytes are never unknown, and words are as they are written"
        )
    coverage = options.get("character_coverage")
    if coverage is not None and not LEAST_COVERAGE <= coverage <= 1:
        raise ValueError(
            f"--character-coverage {coverage:g}: from {LEAST_COVERAGE} to 1, a share of the "
            "characters of the sample"
        )
