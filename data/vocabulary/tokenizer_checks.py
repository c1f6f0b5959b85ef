"""Checks of a tokenizer.json, before the tokenizers library and the program rely on it.

The library reads what its types allow: an id of four billion, for which a list of all pieces takes
32 GB, or a chain of replacements that makes a gigabyte of one letter.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from data.vocabulary.regex_bounds import check_pattern

# Of released vocabularies the largest has 901,629 pieces (XLM-V).
MAX_IDS = 1 << 20
# Characters that the normalizers may make of one, at most: NFKC makes 18 of one.
MAX_GROWTH = 1000
MAX_ADDED_TEXT = 100  # characters of a text that is put before another
# Characters of a word that WordPiece divides, for which it takes cubic time. Released models: 100.
MAX_WORD = 1000
MAX_ADDED = 50_000  # tokens in addition to the pieces
MODELS = ("WordPiece", "BPE", "Unigram", "WordLevel")


@contextlib.contextmanager
def naming_library_errors(what: str, library: str = "the tokenizers library") -> Iterator[None]:
    """Raise ValueError with `what` for any error of a library within the block.

    tokenizers raises plain exceptions, and for its own bugs one that is not an `Exception`.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).strip().split("\n")[0].splitlines())  # \r of a piece
        raise ValueError(f"{what}: {library} cannot read it: {reason}") from error


def naming_texts(
    texts: Sequence[str], library: str = "the tokenizers library"
) -> contextlib.AbstractContextManager[None]:
    """Raise ValueError for errors of a library that encodes texts.

    Regular expressions give up at a limit, and half of a character is no text.
    """
    longest = max(map(len, texts), default=0)
    return naming_library_errors(f"{len(texts):,} text(s) of up to {longest:,} characters", library)


def check_id(piece: str, token_id: Any) -> None:
    """Raise ValueError unless a piece's id is a number from 0 to MAX_IDS - 1."""
    if type(token_id) is not int or not 0 <= token_id < MAX_IDS:
        raise ValueError(
            f"the piece {piece[:60]!r} has id {_show(token_id)}; ids from 0 to {MAX_IDS - 1:,} are "
            "read"
        )


def check_ids(vocab: Any, place: str = "vocab") -> None:
    """Raise ValueError unless a value is {piece: id} with ids in bounds."""
    if not isinstance(vocab, dict) or not vocab:
        raise ValueError(f"{place}: expected an object of piece: id, not {_show(vocab)}")
    for piece, token_id in vocab.items():
        check_id(piece, token_id)


def check_added_count(key: str, count: int) -> None:
    """Raise ValueError, which names the key, for more added tokens than are read."""
    if count > MAX_ADDED:
        raise ValueError(f"{key} has {count:,} tokens; at most {MAX_ADDED:,} are read")


def check_tokenizer(settings: Any) -> None:
    """Raise ValueError, which names the key and the value, for a tokenizer.json out of bounds."""
    if not isinstance(settings, dict):
        raise ValueError(f"holds {type(settings).__name__}, expected a JSON object")
    model = settings.get("model")
    if not isinstance(model, dict) or model.get("type") not in MODELS:
        kind = model.get("type") if isinstance(model, dict) else model
        raise ValueError(f"model.type is {_show(kind)}; {', '.join(MODELS)} are read")
    if model["type"] == "Unigram":
        _check_scores(model)
    else:
        check_ids(model.get("vocab"), "model.vocab")
    if model.get("dropout"):
        raise ValueError(
            f"model.dropout is {_show(model['dropout'])}: a text would have other ids each time"
        )
    longest = model.get("max_input_chars_per_word", 0)
    if type(longest) is not int or not 0 <= longest <= MAX_WORD:
        raise ValueError(
            f"model.max_input_chars_per_word is {_show(longest)}; 0 to {MAX_WORD:,} are read"
        )
    _check_added(settings.get("added_tokens"))
    for step in _iterate_objects(settings):
        pattern = step.get("Regex")
        if isinstance(pattern, str):
            check_pattern(pattern)
        for key in ("prepend", "replacement"):
            if isinstance(step.get(key), str) and len(step[key]) > MAX_ADDED_TEXT:
                raise ValueError(
                    f"{key} has {len(step[key]):,} characters; at most {MAX_ADDED_TEXT} are read"
                )
    for key in ("normalizer", "decoder"):
        _check_growth(key, settings.get(key))


def _check_scores(model: dict[str, Any]) -> None:
    """Raise ValueError unless a unigram model has [piece, score] entries and a valid unk_id."""
    vocab = model.get("vocab")
    if not isinstance(vocab, list) or not 0 < len(vocab) <= MAX_IDS:
        raise ValueError(f"model.vocab: expected 1 to {MAX_IDS:,} entries [piece, score]")
    for entry in vocab:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
            raise ValueError(f"model.vocab: expected [piece, score], not {_show(entry)}")
        if type(entry[1]) not in (int, float):
            raise ValueError(f"model.vocab: the score of {entry[0][:60]!r} is {_show(entry[1])}")
    unknown = model.get("unk_id")
    if unknown is not None and (type(unknown) is not int or not 0 <= unknown < len(vocab)):
        raise ValueError(f"model.unk_id is {_show(unknown)}; there are {len(vocab):,} pieces")


def _check_added(added: Any) -> None:
    """Raise ValueError unless added_tokens are {"content", "id", "special"} with ids in bounds."""
    if added is None:
        return
    if not isinstance(added, list):
        raise ValueError(f"added_tokens: expected a list, not {_show(added)}")
    check_added_count("added_tokens", len(added))
    for token in added:
        if not (
            isinstance(token, dict)
            and isinstance(token.get("content"), str)
            and isinstance(token.get("special"), bool)
        ):
            raise ValueError(
                "added_tokens: expected objects with content, id and special, not " + _show(token)
            )
        check_id(token["content"], token.get("id"))


def _check_growth(key: str, steps: Any) -> None:
    """Raise ValueError if the replacements of a normalizer may make one character very long."""
    growth = 1.0
    for step in _iterate_objects(steps):
        content = step.get("content")
        if step.get("type") == "Replace" and isinstance(content, str):
            pattern = step.get("pattern")
            plain = pattern.get("String") if isinstance(pattern, dict) else None
            # A regular expression may match between any two characters.
            shortest = len(plain) if isinstance(plain, str) and plain else 0
            growth *= max(1.0, len(content) / shortest if shortest else 1 + len(content))
    if growth > MAX_GROWTH:
        raise ValueError(
            f"{key}: its replacements may make {growth:,.0f} characters of one; at most "
            f"{MAX_GROWTH:,} are read"
        )


def iterate_steps(step: Any) -> Iterator[dict[str, Any]]:
    """Yield a step of a tokenizer.json and, of a sequence, its steps."""
    if isinstance(step, dict):
        yield step
        for key in ("normalizers", "pretokenizers"):
            for inner in step.get(key) or ():
                yield from iterate_steps(inner)


def _iterate_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects within a JSON value, but for the vocabulary and the merges."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += [item for key, item in one.items() if key not in ("vocab", "merges")]
        elif isinstance(one, list):
            waiting += one


def _show(value: Any) -> str:
    """Return a value for a message, shortened."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
