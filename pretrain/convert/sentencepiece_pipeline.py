"""Conversion of a SentencePiece model to a `tokenizers` pipeline that gives the same ids.

SentencePiece (Kudo and Richardson 2018) trains the vocabulary and reads the corpus; transformers
loads `tokenizer.json`. The two libraries share the models (unigram, Kudo 2018; BPE, Sennrich et al.
2016) but not the steps from text to model input, so each step is defined here. Two differences
remain, both by design of `tokenizers`: a special token written out in the text (`[MASK]`, `</s>`)
becomes its id, and stays text in SentencePiece; and two segmentations whose scores agree
to the last float32 digit may be decided differently.
"""

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from data.vocabulary.sentencepiece_proto import ModelProto, SentencePiece

UNIGRAM, BPE = 1, 2  # TrainerSpec.ModelType; word and character models have no counterpart
SPACE = "▁"  # U+2581, SentencePiece's symbol for a space
# `Precompiled` maps a grapheme (a base and its marks) at once, and drops the marks of a base that
# it changes. SentencePiece's own rules compose letters and delete control characters. To get the
# same result, compose first, then separate every mark from its base by a control character.
COMPOSING = ("nmt_nfkc", "nmt_nfkc_cf")
BEFORE_MARK = r"(?!\A)(?=[\p{M}\u200c\u200d\uff9e\uff9f])"


def parse_model(model: bytes) -> Any:
    """Return the SentencePiece protocol buffer in bytes. Raises ValueError if there is none."""
    parsed = ModelProto()
    try:
        parsed.ParseFromString(model)
    except Exception as error:  # the module of protobuf's DecodeError depends on its version
        raise ValueError(f"not a SentencePiece model: {error}") from error
    if not parsed.pieces:
        raise ValueError("not a SentencePiece model: it holds no pieces")
    return parsed


def make_tokenizer(model: bytes, sentinels: Sequence[str] = ()) -> Tokenizer:
    """Return a `tokenizers.Tokenizer` with the ids of a SentencePiece model.

    Args:
      model: the bytes of the model's file.
      sentinels: names of the ids after the last piece, in order (T5: <extra_id_99> first).

    Raises:
      ValueError: the model has no exact counterpart, because it is neither unigram nor BPE, or
        treats spaces as suffixes or unescaped, or has pieces marked unused.
    """
    parsed = parse_model(model)
    _check_supported(parsed)
    pipeline = Tokenizer(_make_model(parsed, sentinels))
    pipeline.normalizer = _make_normalizer(parsed.normalizer_spec)
    # "first": text after a special token begins a word only if a space precedes it, as in the text
    # that the model was trained on ("[MASK]." is a masked word and a full stop).
    prepend = "first" if parsed.normalizer_spec.add_dummy_prefix else "never"
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=SPACE, prepend_scheme=prepend, split=False
    )
    pipeline.decoder = _make_decoder(parsed)
    reserved = [
        piece.piece
        for piece in parsed.pieces
        if piece.type in (SentencePiece.CONTROL, SentencePiece.UNKNOWN)
    ]
    pipeline.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in (*reserved, *sentinels)]
    )
    defined = [piece.piece for piece in parsed.pieces if piece.type == SentencePiece.USER_DEFINED]
    pipeline.add_tokens([AddedToken(name, special=False, normalized=False) for name in defined])
    return pipeline


def _check_supported(parsed: Any) -> None:
    """Raise ValueError for a model that has no exact counterpart."""
    trainer, normalizer = parsed.trainer_spec, parsed.normalizer_spec
    kinds = dict(trainer.ModelType.items())
    name = {number: name for name, number in kinds.items()}.get(
        trainer.model_type, trainer.model_type
    )
    if trainer.model_type not in (UNIGRAM, BPE):
        raise ValueError(
            f"a SentencePiece model of type {name} has no tokenizer.json; UNIGRAM and BPE have"
        )
    if trainer.treat_whitespace_as_suffix:
        raise ValueError(
            "a SentencePiece model with treat_whitespace_as_suffix has no tokenizer.json"
        )
    if not normalizer.escape_whitespaces:
        raise ValueError("a SentencePiece model without escape_whitespaces has no tokenizer.json")
    unused = [piece.piece for piece in parsed.pieces if piece.type == SentencePiece.UNUSED]
    if unused:
        raise ValueError(
            f"a SentencePiece model with pieces marked unused ({unused[0]!r}) has no tokenizer.json"
        )


def _make_model(parsed: Any, sentinels: Sequence[str]) -> models.Model:
    """Return the segmentation model."""
    trainer = parsed.trainer_spec
    unknown = next(
        index for index, piece in enumerate(parsed.pieces) if piece.type == SentencePiece.UNKNOWN
    )
    if trainer.model_type == UNIGRAM:
        spelled = _find_score_of_bytes(parsed)
        scores = [
            (piece.piece, spelled if piece.type == SentencePiece.BYTE else piece.score)
            for piece in parsed.pieces
        ] + [(name, 0.0) for name in sentinels]
        return models.Unigram(scores, unk_id=unknown, byte_fallback=trainer.byte_fallback)
    names = [piece.piece for piece in parsed.pieces] + list(sentinels)
    return models.BPE(
        vocab={name: index for index, name in enumerate(names)},
        merges=_list_merges(parsed),
        unk_token=names[unknown],
        fuse_unk=True,
        byte_fallback=trainer.byte_fallback,
    )


def _find_score_of_bytes(parsed: Any) -> float:
    """Return the score of the pieces of bytes in a unigram model.

    SentencePiece never finds such a piece in a text, but `tokenizers` does: the six characters of
    "<0x41>". With a score below any other way of writing them it finds the characters instead. That
    lowers its score of what is unknown, too, which changes nothing if every character of a piece is
    also a piece, as in the models that are trained here.
    """
    normal = [piece for piece in parsed.pieces if piece.type == SentencePiece.NORMAL]
    known = {piece.piece for piece in normal}
    if not all(character in known for piece in known for character in piece):
        return 0.0
    return 8 * min([piece.score for piece in normal], default=0.0) - 8


def _list_merges(parsed: Any) -> list[tuple[str, str]]:
    """Return all pairs of pieces that join to a piece, the best joined piece first.

    A SentencePiece model has no merges, only pieces. A piece may be joined in several ways (`a` +
    `aa`, `aa` + `a`), all with its score. SentencePiece takes the leftmost pair in the text;
    putting shorter left parts first comes closest to that.
    """
    scores = {
        piece.piece: piece.score
        for piece in parsed.pieces
        if piece.type in (SentencePiece.NORMAL, SentencePiece.USER_DEFINED)
    }
    joined = []
    for order, piece in enumerate(parsed.pieces):
        if piece.type != SentencePiece.NORMAL:
            continue
        text = piece.piece
        for cut in range(1, len(text)):
            if text[:cut] in scores and text[cut:] in scores:
                joined.append((-piece.score, order, cut, (text[:cut], text[cut:])))
    return [pair for *_, pair in sorted(joined)]


def _make_normalizer(spec: Any) -> normalizers.Normalizer:
    """Return SentencePiece's normalization, without the symbol that it puts before a text.

    The pre-tokenizer's `first` puts it there.
    """
    steps = []
    if spec.precompiled_charsmap and spec.name in COMPOSING:
        steps.append(normalizers.Replace(Regex(BEFORE_MARK), "\x01"))
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.precompiled_charsmap and spec.name in COMPOSING:
        steps.append(normalizers.NFC())
    if spec.remove_extra_whitespaces:
        steps += [
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(Regex(rf"[ {SPACE}]+\z"), ""),
        ]
        # With a dummy prefix, a leading space stays instead of the symbol.
        if not spec.add_dummy_prefix:
            steps.append(normalizers.Replace(Regex(r"\A "), ""))
    elif spec.add_dummy_prefix:
        steps.append(normalizers.Replace(Regex(r"\A "), "  "))
    if spec.add_dummy_prefix:
        # The pre-tokenizer adds no symbol to one that is there, but the text's own is not one.
        steps.append(normalizers.Replace(Regex(rf"\A{SPACE}"), f" {SPACE}"))
    return normalizers.Sequence(steps)


def _make_decoder(parsed: Any) -> decoders.Decoder:
    """Return the decoder that joins pieces to text."""
    prefix = parsed.normalizer_spec.add_dummy_prefix
    if not parsed.trainer_spec.byte_fallback:
        return decoders.Metaspace(replacement=SPACE, prepend_scheme="always" if prefix else "never")
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] if prefix else steps)
