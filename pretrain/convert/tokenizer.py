"""A vocabulary as the files that `AutoTokenizer` reads, with the same ids for the same text.

The vocabularies of `data` never see special tokens in text: a batch builder puts them where they belong. The exported
tokenizer is the same pipeline with the special tokens known by name, and a template that puts them around a text, which the family's
record names.
"""

from tokenizers import AddedToken, Tokenizer, processors

from pretrain.convert import sentencepiece
from pretrain.convert.safe_folder import write_json
from pretrain.families import find_by_model_type

ROLES = {  # the name of a role in a vocabulary -> its name in transformers
    "bos": "bos_token",
    "eos": "eos_token",
    "unk": "unk_token",
    "sep": "sep_token",
    "pad": "pad_token",
    "cls": "cls_token",
    "mask": "mask_token",
}


def build(vocabulary, family):
    """Return the `tokenizers.Tokenizer` of a vocabulary for a family of models, named by its model_type.

    Raises ValueError where the vocabulary lacks a special piece that the family needs, or cannot be said in the format.
    """
    record = find_by_model_type(family)
    missing = [role for role in record.token_roles if getattr(vocabulary, role) is None]
    if missing:
        raise ValueError(
            f"a {family} tokenizer needs {', '.join(ROLES[role] for role in missing)}, which this {vocabulary.kind} "
            f"vocabulary of {vocabulary.size} pieces does not have"
        )
    pipeline = {
        "sentencepiece": _sentencepiece,
        "wordpiece": _released,
        "byte_bpe": _released,
        "word_bpe": _released,
        "tokenizer_json": lambda vocabulary: Tokenizer.from_str(
            vocabulary.files()["tokenizer.json"].decode()
        ),
    }[vocabulary.kind](vocabulary)
    _check(pipeline, vocabulary)
    pipeline.no_truncation()
    pipeline.no_padding()
    if pipeline.post_processor is None and record.template in TEMPLATES:
        pipeline.post_processor = TEMPLATES[record.template](vocabulary)
    return pipeline


def write(vocabulary, family, folder, length=None):
    """Write tokenizer.json, its two companions, and the vocabulary's own files, into `folder`.

    length: the most tokens that the model reads, where it has a limit.
    """
    build(vocabulary, family).save(str(folder / "tokenizer.json"))
    names = {
        ROLES[role]: vocabulary.pieces[i]
        for role in ROLES
        if (i := getattr(vocabulary, role)) is not None
    }
    if vocabulary.sentinels:
        names["additional_special_tokens"] = [vocabulary.pieces[i] for i in vocabulary.sentinels]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": [
            "input_ids",
            *(["token_type_ids"] if find_by_model_type(family).token_types else []),
            "attention_mask",
        ],
        "clean_up_tokenization_spaces": False,
        **names,
    }
    if vocabulary.sentinels:
        config["extra_ids"] = len(vocabulary.sentinels)
    if vocabulary.kind == "wordpiece":  # for readers of vocab.txt; tokenizer.json says the same
        names_there = {
            "do_lower_case": "lowercase",
            "strip_accents": "strip_accents",
            "tokenize_chinese_chars": "chinese",
        }
        config |= {theirs: vocabulary.options[ours] for theirs, ours in names_there.items()}
    if length is not None:
        config["model_max_length"] = length
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", names)
    for name, content in vocabulary.files().items():
        if name != "tokenizer.json":
            (folder / name).write_bytes(content)


def _sentencepiece(vocabulary):
    return sentencepiece.tokenizer(
        vocabulary.model, vocabulary.pieces[vocabulary.size - vocabulary.options["appended"] :]
    )


def _released(vocabulary):
    """The vocabulary's own pipeline, told which of its pieces are special."""
    result = Tokenizer.from_str(vocabulary.to_json())
    special = sorted(
        {i for role in ROLES if (i := getattr(vocabulary, role)) is not None}
        | set(vocabulary.sentinels)
    )
    for i in special:
        # Byte BPE keeps blanks: the one before a masked word belongs to the mask.
        blank = vocabulary.keeps_spaces and i == vocabulary.mask
        result.add_special_tokens(
            [AddedToken(vocabulary.pieces[i], special=True, normalized=False, lstrip=blank)]
        )
    return result


def _check(result, vocabulary):
    """Raise ValueError unless every piece has the same id in both."""
    ids = result.get_vocab(with_added_tokens=True)
    expected = {piece: i for i, piece in enumerate(vocabulary.pieces) if piece}
    for piece, i in expected.items():
        if ids.get(piece) != i:
            raise ValueError(
                f"piece {piece!r} has id {i} in the vocabulary and {ids.get(piece)} in tokenizer.json"
            )
    if extra := sorted(ids.keys() - expected.keys()):
        raise ValueError(f"tokenizer.json has the piece {extra[0]!r}, which the vocabulary has not")


def _ended(vocabulary):
    """A </s>, or A </s> B </s>."""
    eos = vocabulary.pieces[vocabulary.eos]
    return processors.TemplateProcessing(
        single=["$A", eos], pair=["$A", eos, "$B", eos], special_tokens=[(eos, vocabulary.eos)]
    )


def _enclosed(vocabulary):
    """[CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
    cls, sep = vocabulary.pieces[vocabulary.cls], vocabulary.pieces[vocabulary.sep]
    return processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(cls, vocabulary.cls), (sep, vocabulary.sep)],
    )


def _enclosed_twice(vocabulary):
    """<s> A </s>, or <s> A </s></s> B </s>, with no segments."""
    cls, sep = ((vocabulary.pieces[i], i) for i in (vocabulary.cls, vocabulary.sep))
    return processors.RobertaProcessing(sep, cls, add_prefix_space=False)


TEMPLATES = {
    "eos": _ended,
    "cls_sep": _enclosed,
    "cls_sep_sep": _enclosed_twice,
}  # by `Family.template`; "none" is in no table
