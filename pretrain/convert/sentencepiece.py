"""A SentencePiece model said again as a `tokenizers` pipeline, which gives the same ids to the same text.

SentencePiece (Kudo and Richardson 2018) is what trains and what reads the corpus; `tokenizer.json` is what the world
loads. The two libraries share the models (unigram, Kudo 2018; BPE, Sennrich et al. 2016) but not the walk from text to
model input, so every step of that walk is spelled out here. Two differences remain, both by design of `tokenizers`:
a special token written out in the text (`[MASK]`, `</s>`, `<0x41>`) becomes its id there and stays text in
SentencePiece; and two segmentations whose scores agree to the last float32 digit may be decided differently.
"""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from data.vocabulary.sentencepiece_proto import ModelProto, SentencePiece

UNIGRAM, BPE = 1, 2  # TrainerSpec.ModelType; word and character models have no counterpart
SPACE = "▁"  # U+2581, what SentencePiece writes for a blank
# `Precompiled` maps what a reader sees as one letter (base and marks) at once, and drops the marks of a base that it
# changes. For SentencePiece's own rules, which compose letters and delete control characters, this is undone: compose
# first, then part every mark from its base by a control character.
COMPOSING = ("nmt_nfkc", "nmt_nfkc_cf")
BEFORE_MARK = r"(?!\A)(?=[\p{M}\u200c\u200d\uff9e\uff9f])"


def parse(model):
    """The SentencePiece protocol buffer in the bytes `model`. Raises ValueError when they are none."""
    parsed = ModelProto()
    try:
        parsed.ParseFromString(model)
    except Exception as error:  # protobuf's DecodeError has moved between its versions
        raise ValueError(f"not a SentencePiece model: {error}") from error
    if not parsed.pieces:
        raise ValueError("not a SentencePiece model: it holds no pieces")
    return parsed


def tokenizer(model, sentinels=()):
    """A `tokenizers.Tokenizer` with the ids of the SentencePiece model in the bytes `model`.

    `sentinels` are names for the ids after the last piece, in the order of those ids (T5: <extra_id_99> first).
    Raises ValueError, naming the setting, for a model that cannot be said exactly: neither unigram nor BPE, blanks as
    suffixes or unescaped, or pieces marked unused.
    """
    parsed = parse(model)
    _refuse(parsed)
    result = Tokenizer(_model(parsed, sentinels))
    result.normalizer = _normalizer(parsed.normalizer_spec)
    # "first": a piece of text after a special token begins a word only if a blank stands there, as in the running
    # text that the model was trained on ("[MASK]." is a masked word and a full stop).
    prepend = "first" if parsed.normalizer_spec.add_dummy_prefix else "never"
    result.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=SPACE, prepend_scheme=prepend, split=False
    )
    result.decoder = _decoder(parsed)
    reserved = [
        piece.piece
        for piece in parsed.pieces
        if piece.type in (SentencePiece.CONTROL, SentencePiece.UNKNOWN)
    ]
    result.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in (*reserved, *sentinels)]
    )
    defined = [piece.piece for piece in parsed.pieces if piece.type == SentencePiece.USER_DEFINED]
    result.add_tokens([AddedToken(name, special=False, normalized=False) for name in defined])
    return result


def _refuse(parsed):
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


def _model(parsed, sentinels):
    trainer = parsed.trainer_spec
    unknown = next(
        index for index, piece in enumerate(parsed.pieces) if piece.type == SentencePiece.UNKNOWN
    )
    if trainer.model_type == UNIGRAM:
        scores = [(piece.piece, piece.score) for piece in parsed.pieces] + [
            (name, 0.0) for name in sentinels
        ]
        return models.Unigram(scores, unk_id=unknown, byte_fallback=trainer.byte_fallback)
    names = [piece.piece for piece in parsed.pieces] + list(sentinels)
    return models.BPE(
        vocab={name: index for index, name in enumerate(names)},
        merges=_merges(parsed),
        unk_token=names[unknown],
        fuse_unk=True,
        byte_fallback=trainer.byte_fallback,
    )


def _merges(parsed):
    """Every pair of pieces that joins to a piece, best joined piece first: SentencePiece keeps the pieces only.

    One piece can be joined in several ways (`a` + `aa`, `aa` + `a`), which all have its score. SentencePiece then takes
    the leftmost in the text; the shorter left part first comes nearest to that.
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


def _normalizer(spec):
    """SentencePiece's normalisation up to, but without, the word mark at the start (the pre-tokenizer's `first`)."""
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
        if (
            not spec.add_dummy_prefix
        ):  # else a leading blank stays, as the word mark that would be put there
            steps.append(normalizers.Replace(Regex(r"\A "), ""))
    elif spec.add_dummy_prefix:
        steps.append(normalizers.Replace(Regex(r"\A "), "  "))
    if spec.add_dummy_prefix:
        # The pre-tokenizer puts no mark where one is; a mark written out in the text is not one.
        steps.append(normalizers.Replace(Regex(rf"\A{SPACE}"), f" {SPACE}"))
    return normalizers.Sequence(steps)


def _decoder(parsed):
    prefix = parsed.normalizer_spec.add_dummy_prefix
    if not parsed.trainer_spec.byte_fallback:
        return decoders.Metaspace(replacement=SPACE, prepend_scheme="always" if prefix else "never")
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] if prefix else steps)
