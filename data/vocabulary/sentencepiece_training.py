"""Train a SentencePiece vocabulary (Kudo and Richardson 2018) of one of the layouts."""

import dataclasses
import io
import re
from collections.abc import Callable, Iterable
from typing import Any

import sentencepiece

from data.vocabulary.base import NUM_SENTINELS
from data.vocabulary.characters import CharacterChoice, choose_characters
from data.vocabulary.layouts import DEFAULT_LAYOUT, LAYOUTS_WITH_SENTINELS, check_training
from data.vocabulary.layouts import SENTENCEPIECE_LAYOUTS as LAYOUTS
from data.vocabulary.sentencepiece import SentencePieceVocabulary
from data.vocabulary.sentencepiece_proto import ModelProto

MIN_SIZE = 16  # ids of the smallest vocabulary, without sentinels and bytes
NUM_BYTES = 256
LONGEST = 4192  # bytes; the library silently skips longer lines, so they are cut
# Candidate pieces at the start of unigram training: fast, and enough for a million sentences.
NUM_SEED_PIECES = 300_000

NORMALIZATION_RULES = {False: "nmt_nfkc", True: "nmt_nfkc_cf"}  # by `lowercase`


@dataclasses.dataclass(frozen=True)
class SentencePieceOptions:
    """How a SentencePiece vocabulary is trained.

    Attributes:
      algorithm: unigram or bpe.
      lowercase: whether the text is case-folded.
      character_coverage: the share of the sample's characters that have a piece; None: those that
        `data.vocabulary.characters` chooses.
      byte_fallback: whether other characters are written by pieces of their bytes, of which there
        are 256; else they are unknown.
      split_digits: whether each digit is a piece of its own.
    """

    layout: str = DEFAULT_LAYOUT
    algorithm: str = "unigram"
    lowercase: bool = False
    character_coverage: float | None = None
    byte_fallback: bool = False
    split_digits: bool = False

    @property
    def num_sentinels(self) -> int:
        """Number of sentinels after the pieces of the model."""
        return NUM_SENTINELS if self.layout in LAYOUTS_WITH_SENTINELS else 0

    @property
    def num_bytes(self) -> int:
        """Number of pieces for bytes."""
        return NUM_BYTES if self.byte_fallback else 0

    def check(self, size: int) -> None:
        """Raise ValueError for an option that is not valid, or a size that is too small."""
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout {self.layout!r}: allowed are {', '.join(LAYOUTS)}")
        if self.algorithm not in ("unigram", "bpe"):
            raise ValueError(f"algorithm {self.algorithm!r}: allowed are unigram and bpe")
        check_training(self.algorithm, {"character_coverage": self.character_coverage})
        least = MIN_SIZE + self.num_sentinels + self.num_bytes
        if size < least:
            pieces = f" with {NUM_BYTES} bytes" if self.byte_fallback else ""
            raise ValueError(
                f"a {self.layout} vocabulary{pieces} needs at least {least} ids, not {size}"
            )


class _TooLargeError(ValueError):
    """A vocabulary is too large for its text, which allows `most` ids."""

    def __init__(self, most: int) -> None:
        super().__init__(f"at most {most}")
        self.most = most


def train_sentencepiece(
    texts: Iterable[str],
    size: int,
    report: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> SentencePieceVocabulary:
    """Train a SentencePiece model.

    The result depends on the texts and their order alone, not on the machine: the library uses one
    thread and does not sample.

    Args:
      size: number of ids, special tokens, bytes and sentinels included.

    Raises:
      ValueError: if an option is not valid, or there is too little text for the size; the message
        gives the largest possible size.
    """
    chosen, texts = SentencePieceOptions(**options), list(texts)
    chosen.check(size)
    try:
        vocabulary, characters = _train_model(texts, size, chosen)
    except _TooLargeError as error:
        raise ValueError(_describe_largest(texts, size, chosen, error.most)) from error
    report(characters.description)
    return vocabulary


def _train_model(
    texts: list[str], size: int, options: SentencePieceOptions
) -> tuple[SentencePieceVocabulary, CharacterChoice]:
    """Train a model, and return it with its characters."""
    rule, appended = NORMALIZATION_RULES[options.lowercase], options.num_sentinels
    characters = choose_characters(
        texts, size - appended - options.num_bytes, rule, options.character_coverage
    )
    lines = (line for text in characters.texts for line in _cut_text(text, LONGEST))
    rare = {
        "required_chars": characters.required,
        "byte_fallback": options.byte_fallback,
        "split_digits": options.split_digits,
    }
    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=out,
            vocab_size=size - appended,
            model_type=options.algorithm,
            normalization_rule_name=rule,
            character_coverage=characters.coverage,
            num_threads=1,
            max_sentence_length=LONGEST,
            seed_sentencepiece_size=NUM_SEED_PIECES,
            minloglevel=2,
            **LAYOUTS[options.layout],
            **{name: value for name, value in rare.items() if value},
        )
    except RuntimeError as error:
        if found := re.search(r"value <= (\d+)", str(error)):
            raise _TooLargeError(int(found[1]) + appended) from error
        raise ValueError(_describe_error(str(error), size, appended)) from error
    return SentencePieceVocabulary(_round_scores(out.getvalue()), appended), characters


def _describe_largest(texts: list[str], size: int, options: SentencePieceOptions, most: int) -> str:
    """Return the message for a size that is too large, with the largest that can be trained.

    A smaller vocabulary may have fewer characters, and so fewer ids than the library says.
    """
    while most >= MIN_SIZE + options.num_sentinels + options.num_bytes:
        try:
            _train_model(texts, most, options)
        except _TooLargeError as error:
            most = min(error.most, most - 1)
            continue
        return (
            f"the text is too small for a vocabulary of {size} ids; "
            f"it allows at most {most}: --vocab-size {most}"
        )
    return "the text is too small to train a vocabulary on"


def _round_scores(model: bytes) -> bytes:
    """Return the model with its scores rounded to multiples of 2^-8.

    Their float32 sums are exact in any order, so two libraries that add the scores of the same
    pieces in different orders find the same ties. So the exported tokenizer gives the same ids,
    and so does encoding several sentences at once.
    """
    parsed = ModelProto.FromString(model)
    for piece in parsed.pieces:
        piece.score = round(piece.score * 256) / 256
    return parsed.SerializeToString(deterministic=True)


def _describe_error(message: str, size: int, appended: int) -> str:
    """Return SentencePiece's error message in terms of `prepare`'s options."""
    if found := re.search(r"smaller than required_chars.*?(\d+) vs (\d+)", message):
        least = int(found[2]) + appended
        return (
            f"a vocabulary of {size} ids cannot hold the characters of the text; "
            f"it needs at least {least}"
        )
    if "sentences_.empty" in message or "all_chars_count" in message:
        return "there is no text to train a vocabulary on"
    return f"SentencePiece could not train a vocabulary of {size} ids: {message}"


def _cut_text(text: str, longest: int) -> list[str]:
    """Return a text in parts of at most `longest` UTF-8 bytes, cut at white space if possible."""
    if len(text) * 4 <= longest or len(text.encode()) <= longest:
        return [text]
    middle = len(text) // 2
    space = text.rfind(" ", 1, middle)
    border = space if space > 0 else middle
    return _cut_text(text[:border], longest) + _cut_text(text[border:], longest)
