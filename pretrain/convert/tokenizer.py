"""Export of a vocabulary as files of `AutoTokenizer` that give the same ids to the same text.

The vocabularies of `data` never encode special tokens in text: batch builders insert them. The
exported tokenizer is the same pipeline, extended by the names of the special tokens and by the
template of the family's record, which puts them around a text.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors

from data.rows.frames import CLS_TYPE
from data.vocabulary.base import Vocabulary
from data.vocabulary.folder_settings import STAND_INS
from data.vocabulary.layouts import LETTER_CLASSES, OWN_CLASSES
from data.vocabulary.letters.letter_vocabulary import make_overlapping_cuts
from pretrain.convert import sentencepiece_pipeline
from pretrain.convert.export_folder import write_json
from pretrain.families import find_by_model_type

ROLES = {  # {role of a special token: its name in transformers}
    "bos": "bos_token",
    "eos": "eos_token",
    "unk": "unk_token",
    "sep": "sep_token",
    "pad": "pad_token",
    "cls": "cls_token",
    "mask": "mask_token",
}


def build_tokenizer(vocabulary: Vocabulary, family: str, is_labelled: bool = False) -> Tokenizer:
    """Return the tokenizer of a vocabulary for a family of models, given by its model_type.

    With `is_labelled` it encodes rows of labelled texts, as a model with a head reads them. Where
    tokens overlap, it reads letters and k-mers with blanks between them alike.

    Raises ValueError if the vocabulary lacks a special token that the family needs, or if it has no
    counterpart in `tokenizers`.
    """
    record = find_by_model_type(family)
    missing = [role for role in record.token_roles if getattr(vocabulary, role) is None]
    if missing:
        raise ValueError(
            f"a {family} tokenizer needs {', '.join(ROLES[role] for role in missing)}, which this "
            f"{vocabulary.kind} vocabulary of {vocabulary.size} pieces does not have"
        )
    pipeline = {
        "sentencepiece": _convert_sentencepiece,
        "wordpiece": _convert_released,
        "byte_bpe": _convert_released,
        "word_bpe": _convert_released,
        "residues": _convert_released,
        "tokenizer_json": lambda vocabulary: Tokenizer.from_str(
            vocabulary.export_files()["tokenizer.json"].decode()
        ),
    }[vocabulary.kind](vocabulary)
    _check_ids(pipeline, vocabulary)
    pipeline.no_truncation()
    pipeline.no_padding()
    name = record.labelled_template if is_labelled else record.template
    if name in TEMPLATES:
        set_frame(pipeline, TEMPLATES[name](vocabulary))
    return pipeline


def set_frame(pipeline: Tokenizer, template: processors.PostProcessor) -> None:
    """Let a pipeline put the special tokens of a template around texts.

    The post-processor of a tokenizer.json remains where it puts the same tokens. Otherwise only its
    trimming of blanks remains, which keeps them out of the offsets of words.
    """
    own = pipeline.post_processor
    before = frame_probe(pipeline)
    pipeline.post_processor = template
    if own is None:
        return
    if frame_probe(pipeline) == before:
        pipeline.post_processor = own
        return
    settings = json.loads(own.__getstate__())
    trimming = [
        processors.ByteLevel(add_prefix_space=step.get("add_prefix_space", True), trim_offsets=True)
        for step in settings.get("processors", [settings])
        if step.get("trim_offsets")
    ]
    if trimming and not isinstance(template, processors.RobertaProcessing):  # which trims itself
        pipeline.post_processor = processors.Sequence([trimming[0], template])


def frame_probe(pipeline: Tokenizer) -> list[tuple[list[int], list[int]]]:
    """Return (ids, token types) of a text and of a pair, with their special tokens."""
    probes = pipeline.encode("a"), pipeline.encode("a", "b")
    return [(encoding.ids, encoding.type_ids) for encoding in probes]


def write_tokenizer(
    vocabulary: Vocabulary,
    family: str,
    folder: pathlib.Path,
    length: int | None = None,
    is_labelled: bool = False,
) -> None:
    """Write tokenizer.json, its two configuration files, and the vocabulary's own files.

    Args:
      length: the largest number of tokens that the model reads; None for no limit.
      is_labelled: whether the model reads labelled texts.
    """
    pipeline = build_tokenizer(vocabulary, family, is_labelled)
    if vocabulary.overlap:  # a file cannot cut overlapping tokens: it reads them with blanks
        pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pipeline.save(str(folder / "tokenizer.json"))
    own = {
        ROLES[role]: vocabulary.pieces[i]
        for role in ROLES
        if (i := getattr(vocabulary, role)) is not None
    }
    replaced = find_stand_ins(own, vocabulary, family, is_labelled)
    names: dict[str, Any] = own | replaced
    if vocabulary.sentinels:
        names["additional_special_tokens"] = [vocabulary.pieces[i] for i in vocabulary.sentinels]
    config = {
        "tokenizer_class": name_class(vocabulary),
        "model_input_names": [
            "input_ids",
            *(["token_type_ids"] if find_by_model_type(family).token_types else []),
            "attention_mask",
        ],
        "clean_up_tokenization_spaces": False,
        **names,
    }
    if replaced:  # so that an import finds the vocabulary as it was
        config[STAND_INS] = {name: own.get(name) for name in replaced}
    if vocabulary.sentinels:
        config["extra_ids"] = len(vocabulary.sentinels)
    if vocabulary.overlap:
        config["do_lower_case"] = False
    if vocabulary.kind == "wordpiece":  # for readers of vocab.txt; tokenizer.json has the same
        option_names = {
            "do_lower_case": "lowercase",
            "strip_accents": "strip_accents",
            "tokenize_chinese_chars": "chinese",
        }
        config |= {theirs: vocabulary.options[ours] for theirs, ours in option_names.items()}
    if find_by_model_type(family).cls_position == "last":
        config["padding_side"] = "left"  # transformers reads the last position
    if vocabulary.options.get("prefix_space"):
        config["add_prefix_space"] = True
    if length is not None:
        config["model_max_length"] = length
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", names)
    for name, content in vocabulary.export_files().items():
        if name != "tokenizer.json":
            (folder / name).write_bytes(content)


def name_class(vocabulary: Vocabulary) -> str:
    """Return the name of the class of `transformers` that reads the files of a vocabulary."""
    if vocabulary.kind == "residues":
        return LETTER_CLASSES[bool(vocabulary.overlap)]
    return OWN_CLASSES.get(vocabulary.pieces, "PreTrainedTokenizerFast")


def find_stand_ins(
    own: Mapping[str, str], vocabulary: Vocabulary, family: str, is_labelled: bool
) -> dict[str, str]:
    """Return {name of a special token: the one that training used}, where the vocabulary's differs.

    In a stream of texts the end of text is before each text. It also pads where nothing else does,
    as `find_padding` has it. T5's gap is its first sentinel.

    Args:
      own: the same names of the vocabulary's own special tokens.
    """
    record, eos, used = find_by_model_type(family), own.get("eos_token"), {}
    if record.joins_texts and eos:
        used["bos_token"] = eos
    if (record.joins_texts or is_labelled) and eos:
        used["pad_token"] = own.get("pad_token", eos)
    if vocabulary.sentinels and any(objective.gaps == "spans" for objective in record.objectives):
        used["mask_token"] = own.get("mask_token", vocabulary.pieces[vocabulary.sentinels[0]])
    return {name: token for name, token in used.items() if own.get(name) != token}


def _convert_sentencepiece(vocabulary: Any) -> Tokenizer:
    """Return the pipeline of a SentencePiece vocabulary."""
    sentinels = vocabulary.pieces[vocabulary.size - vocabulary.options["appended"] :]
    return sentencepiece_pipeline.make_tokenizer(vocabulary.model_bytes, sentinels)


def _convert_released(vocabulary: Any) -> Tokenizer:
    """Return the vocabulary's own pipeline, extended by its special tokens."""
    pipeline = Tokenizer.from_str(vocabulary.to_json())
    if vocabulary.overlap:
        pipeline.pre_tokenizer = make_overlapping_cuts(vocabulary.overlap)
    special = sorted(
        {i for role in ROLES if (i := getattr(vocabulary, role)) is not None}
        | set(vocabulary.sentinels)
    )
    for i in special:
        # In byte-level BPE, the space before a masked word belongs to the mask.
        strips_left = vocabulary.keeps_spaces and i == vocabulary.mask
        pipeline.add_special_tokens(
            [AddedToken(vocabulary.pieces[i], special=True, normalized=False, lstrip=strips_left)]
        )
    return pipeline


def _check_ids(pipeline: Tokenizer, vocabulary: Vocabulary) -> None:
    """Raise ValueError unless every piece has the same id in both."""
    ids = pipeline.get_vocab(with_added_tokens=True)
    expected = {piece: i for i, piece in enumerate(vocabulary.pieces) if piece}
    for piece, i in expected.items():
        if ids.get(piece) != i:
            raise ValueError(
                f"piece {piece!r} has id {i} in the vocabulary and {ids.get(piece)} in "
                "tokenizer.json"
            )
    if extra := sorted(ids.keys() - expected.keys()):
        raise ValueError(
            f"tokenizer.json has the piece {extra[0]!r}, which the vocabulary does not have"
        )


def _make_eos_template(vocabulary: Any) -> processors.PostProcessor:
    """Return the template A </s>, or A </s> B </s>."""
    eos = vocabulary.pieces[vocabulary.eos]
    return processors.TemplateProcessing(
        single=["$A", eos], pair=["$A", eos, "$B", eos], special_tokens=[(eos, vocabulary.eos)]
    )


def _make_eos_between_template(vocabulary: Any) -> processors.PostProcessor:
    """Return the template A, or A <eos> B; A B for a vocabulary without an end of text."""
    if vocabulary.eos is None:
        return processors.TemplateProcessing(single=["$A"], pair=["$A", "$B"], special_tokens=[])
    eos = vocabulary.pieces[vocabulary.eos]
    return processors.TemplateProcessing(
        single=["$A"], pair=["$A", eos, "$B"], special_tokens=[(eos, vocabulary.eos)]
    )


def _make_cls_template(vocabulary: Any) -> processors.PostProcessor:
    """Return the template [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
    cls, sep = vocabulary.pieces[vocabulary.cls], vocabulary.pieces[vocabulary.sep]
    return processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(cls, vocabulary.cls), (sep, vocabulary.sep)],
    )


def _make_cls_sep_sep_template(vocabulary: Any) -> processors.PostProcessor:
    """Return the template <s> A </s>, or <s> A </s></s> B </s>, without token types."""
    cls, sep = ((vocabulary.pieces[i], i) for i in (vocabulary.cls, vocabulary.sep))
    return processors.RobertaProcessing(sep, cls, add_prefix_space=False)


def _make_cls_last_template(vocabulary: Any) -> processors.PostProcessor:
    """Return the template A <sep> <cls>, or A <sep> B <sep> <cls>."""
    cls, sep = vocabulary.pieces[vocabulary.cls], vocabulary.pieces[vocabulary.sep]
    last = f"{cls}:{CLS_TYPE}"
    return processors.TemplateProcessing(
        single=["$A", sep, last],
        pair=["$A", sep, "$B:1", f"{sep}:1", last],
        special_tokens=[(cls, vocabulary.cls), (sep, vocabulary.sep)],
    )


# {`Family.template`: its template}; "none" has none
TEMPLATES = {
    "eos": _make_eos_template,
    "eos_between": _make_eos_between_template,
    "cls_sep": _make_cls_template,
    "cls_sep_sep": _make_cls_sep_sep_template,
    "cls_last": _make_cls_last_template,
}
