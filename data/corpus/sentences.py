"""Find sentence boundaries by rules, over megabytes of UTF-8 text at once.

A sentence ends
1. at a blank line, and at every line break of a document that is not hard-wrapped. A document is
   hard-wrapped if fewer than one in ten of its lines is longer than 100 characters;
2. at white space after `.` `!` `?` `…` or a terminator of another script, and any closing quotes or
   brackets, unless the next letter, after opening marks, is lower-case. The full stop of an
   abbreviation (Mr. Prof. vs.), of a single letter other than I (J. S. Mill, e.g. U.S.), and of
   No. pp. etc. before a digit does not end a sentence;
3. after `。` `！` `？` `｡` and closing brackets, with or without white space;
4. after 8192 bytes at the latest, at white space if there is some.

A sentence never spans two documents. The abbreviations are English; in other languages the rules
split slightly too often. The rules run on bytes in NumPy, because regular expressions over strings
would take half as long as the encoder.

Axes: T bytes of text, G gaps (runs of white space).
"""

import functools
import re
from collections.abc import Iterator, Sequence

import numpy as np

DOCUMENT_SEPARATOR = b"\n\n"  # between documents; a blank line ends a sentence by rule 1
MAX_WRAPPED_LINE = 100  # characters of the longest line of hard-wrapped text
MAX_SENTENCE_BYTES = 8192  # bytes of the longest sentence
WHITESPACE = bytes(range(0x21))  # control characters count as white space
ABBREVIATIONS = (
    "Mr Mrs Ms Messrs Mme Mlle Dr Prof Rev Hon St Sr Jr Gen Col Maj Capt Lt Sgt Adm Gov Sen Rep "
    "Pres Mt Ft vs cf viz al Inc Ltd Co Corp Bros Esq approx dept Dept Univ Jan Feb Apr Aug Sept "
    "Oct Nov Dec"
).split()
ABBREVIATIONS_BEFORE_DIGITS = (
    "No no Nos nos pp Vol vol Fig fig Figs Eq eq Ch ch Sec sec Art art Pt Bk ver Mar Jun Jul Sep"
).split()
TERMINATORS = ".!?…؟۔।॥。！？｡"
CLOSING_MARKS = "\"')]}*_”’»›）」』"
OPENING_MARKS = "\"'([{*_“‘«‹„¿¡（「『—–"
CJK_SENTENCE_END = re.compile("(?:。|！|？|｡)+(?:”|’|」|』|）)*".encode())
ABBREVIATION_BYTES = 8  # bytes read before a full stop; every abbreviation has fewer letters


def find_sentence_spans(
    text: bytes, documents: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the sentences of a text.

    Args:
      text: UTF-8; non-empty documents without surrounding white space, joined by a blank line.
      documents: int64, offsets of the documents.

    Returns:
      int64 arrays: the start and the end of each sentence, and the starts that rule 4 added.
    """
    bytes_T = np.frombuffer(text, np.uint8)
    white_T = bytes_T <= WHITESPACE[-1]
    edges = np.flatnonzero(white_T[1:] != white_T[:-1]) + 1
    gaps, gap_ends = edges[0::2], edges[1::2]  # gap i is [gaps[i], gap_ends[i])
    breaks = np.flatnonzero(bytes_T == 0x0A)
    in_gap = np.searchsorted(gaps, breaks, "right") - 1
    eligible = _build_tables().may_end[bytes_T[gaps - 1]]
    eligible[in_gap] = True
    eligible = np.flatnonzero(eligible)  # about one gap in fifteen
    gaps, gap_ends, in_gap = gaps[eligible], gap_ends[eligible], np.searchsorted(eligible, in_gap)
    ends_here = _find_line_ends(bytes_T, gaps, breaks, in_gap, documents)
    others = np.flatnonzero(~ends_here)
    ends_here[others] = _find_punctuation_ends(bytes_T, gaps[others], gap_ends[others])
    starts, ends = gap_ends[ends_here], gaps[ends_here]
    if len(wide := _find_cjk_ends(text, white_T)):
        starts, ends = (
            np.sort(np.concatenate([starts, wide])),
            np.sort(np.concatenate([ends, wide])),
        )
    return _cut_long_sentences(text, np.append(0, starts), np.append(ends, len(text)))


def find_whole_spans(
    text: bytes, documents: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find documents without sentences, such as proteins.

    Args and results as in the function above.
    """
    ends = np.append(documents[1:] - len(DOCUMENT_SEPARATOR), len(text))
    return documents.copy(), ends, np.zeros(0, np.int64)


def find_pair_spans(
    text: bytes, documents: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the two sides of documents that are pairs, which are not split any further.

    Args and results as in the function above; a document has one line a side.
    """
    line_feeds = np.flatnonzero(np.frombuffer(text, np.uint8) == 0x0A)
    breaks = line_feeds[:: 1 + len(DOCUMENT_SEPARATOR)]  # the separator has line feeds of its own
    starts = np.stack([documents, breaks + 1], axis=1).ravel()
    ends = np.stack(
        [breaks, np.append(documents[1:] - len(DOCUMENT_SEPARATOR), len(text))], axis=1
    ).ravel()
    return starts, ends, np.zeros(0, np.int64)


def _find_line_ends(
    bytes_T: np.ndarray,
    gaps: np.ndarray,
    breaks: np.ndarray,
    in_gap: np.ndarray,
    documents: np.ndarray,
) -> np.ndarray:
    """Return bool [G], True for gaps that end a sentence by rule 1.

    Args:
      gaps: offsets of the gaps.
      breaks: offsets of the line breaks.
      in_gap: index of the gap of each line break.
      documents: offsets of the documents.
    """
    count = np.bincount(in_gap, minlength=len(gaps))
    first, last = np.append(0, breaks + 1), np.append(breaks, len(bytes_T))
    document = np.searchsorted(documents, first, "right") - 1
    # A line is measured in characters, so continuation bytes of UTF-8 are subtracted.
    inner = np.flatnonzero((bytes_T & 0xC0) == 0x80)
    num_inner = np.searchsorted(inner, last) - np.searchsorted(inner, first)
    is_long = last - first - num_inner > MAX_WRAPPED_LINE
    lines = np.bincount(document[last > first], minlength=len(documents))
    wrapped = 10 * np.bincount(document[is_long], minlength=len(documents)) < lines
    single = np.flatnonzero(count == 1)
    ends_here = count > 1
    ends_here[single] = ~wrapped[np.searchsorted(documents, gaps[single], "right") - 1]
    return ends_here


def _find_punctuation_ends(
    bytes_T: np.ndarray, gaps: np.ndarray, gap_ends: np.ndarray
) -> np.ndarray:
    """Return bool [G], True for gaps [gaps[i], gap_ends[i]) that end a sentence by rule 2."""
    last, closed = gaps - 1, np.zeros(len(gaps), np.bool_)
    for _ in range(4):
        width = _measure_marks(bytes_T, last, _build_tables().closers, backwards=True)
        if not width.any():
            break
        last, closed = last - width, closed | (width > 0)
    ends_here = _measure_marks(bytes_T, last, _build_tables().terminators, backwards=True) > 0
    following = gap_ends
    for _ in range(3):
        width = _measure_marks(bytes_T, following, _build_tables().openers)
        if not width.any():
            break
        following = following + width
    codes = _decode_code_points(bytes_T, following)
    ends_here &= ~_build_tables().lower[codes]
    stops = np.flatnonzero(ends_here & ~closed & (bytes_T[last] == ord(".")))
    digit = (codes[stops] >= ord("0")) & (codes[stops] <= ord("9"))
    ends_here[stops] = ~_is_abbreviation(bytes_T, last[stops], digit)
    return ends_here


def _is_abbreviation(
    bytes_T: np.ndarray, stops: np.ndarray, before_digit: np.ndarray
) -> np.ndarray:
    """Return for the full stops at the offsets `stops` whether each ends an abbreviation."""
    offsets = stops[:, None] - np.arange(1, ABBREVIATION_BYTES + 1)  # backwards from the full stop
    before = np.where(offsets >= 0, bytes_T[np.maximum(offsets, 0)], 0)
    letters = np.logical_and.accumulate(_build_tables().letter[before], axis=1)
    words = np.where(letters, before, 0).astype(np.uint8).view("<u8")[:, 0]
    is_pronoun = (before[:, 0] == ord("I")) & (before[:, 1] != ord("."))
    initial = letters[:, 0] & ~letters[:, 1] & ~is_pronoun
    return (
        initial
        | _is_member(words, _build_tables().always)
        | (before_digit & _is_member(words, _build_tables().before_digits))
    )


def _find_cjk_ends(text: bytes, white_T: np.ndarray) -> np.ndarray:
    """Return the offsets after Chinese or Japanese full stops (rule 3) without white space."""
    # A search for the lead bytes is ten times faster than one for the whole characters.
    if not any(lead in text for lead in (b"\xe3", b"\xef")):
        return np.zeros(0, np.int64)
    found = np.array([match.end() for match in CJK_SENTENCE_END.finditer(text)], np.int64)
    found = found[found < len(text)]
    return found[~white_T[found]]


def _cut_long_sentences(
    text: bytes, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Apply rule 4 and return (starts, ends, starts that were added)."""
    long = np.flatnonzero(ends - starts > MAX_SENTENCE_BYTES)
    if not len(long):
        return starts, ends, long
    groups = [[(start, end)] for start, end in zip(starts.tolist(), ends.tolist())]
    for i in long:
        groups[i] = list(cut_span(text, int(starts[i]), int(ends[i]), MAX_SENTENCE_BYTES))
    spans = np.array([span for group in groups for span in group], np.int64)
    added = np.array([start for i in long for start, _ in groups[i][1:]], np.int64)
    return spans[:, 0].copy(), spans[:, 1].copy(), added


def cut_span(text: bytes, start: int, end: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield spans of at most `max_bytes` bytes that cover text[start:end].

    A cut is at white space, or between characters if there is none.
    """
    while end - start > max_bytes:
        border = max(
            text.rfind(space, start + 1, start + max_bytes) for space in (b" ", b"\n", b"\t")
        )
        if border < 0:
            border = start + max_bytes
            while border > start + 1 and text[border] & 0xC0 == 0x80:
                border -= 1
        stop = start + len(text[start:border].rstrip(WHITESPACE))
        if stop > start:
            yield start, stop
        while border < end and text[border] <= WHITESPACE[-1]:
            border += 1
        start = border
    if end > start:
        yield start, end


class _CharacterTables:
    """Lookup tables of byte and code point classes."""

    def __init__(self) -> None:
        codes = np.arange(256)
        self.letter = np.isin(codes, list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        self.closers, self.openers, self.terminators = map(
            _encode_marks, (CLOSING_MARKS, OPENING_MARKS, TERMINATORS)
        )
        self.may_end = np.isin(codes, [mark.encode()[-1] for mark in TERMINATORS + CLOSING_MARKS])
        self.lower = np.array([chr(code).islower() for code in range(1 << 16)])
        self.always, self.before_digits = map(
            _encode_abbreviations, (ABBREVIATIONS, ABBREVIATIONS_BEFORE_DIGITS)
        )


@functools.cache
def _build_tables() -> _CharacterTables:
    """Return the tables, built once."""
    return _CharacterTables()


def _encode_marks(marks: str) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Return lookup tables of punctuation marks.

    Returns:
      bool [256], True for the marks of one byte, and {number of UTF-8 bytes: sorted marks of that
      size as big-endian integers}.
    """
    encoded = [mark.encode() for mark in marks]
    short = np.isin(np.arange(256), [mark[0] for mark in encoded if len(mark) == 1])
    wide = {n: [int.from_bytes(mark, "big") for mark in encoded if len(mark) == n] for n in (2, 3)}
    return short, {n: np.sort(np.array(values, np.uint32)) for n, values in wide.items()}


def _encode_abbreviations(words: Sequence[str]) -> np.ndarray:
    """Return words as sorted integers, each of the word's bytes in reverse order."""
    keys = [int.from_bytes(word[::-1].encode(), "little") for word in words]
    return np.sort(np.array(keys, np.uint64))


def _is_member(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return np.isin(values, table) for a small sorted table, without sorting the values."""
    return table[np.minimum(np.searchsorted(table, values), len(table) - 1)] == values


def _measure_marks(
    bytes_T: np.ndarray,
    offsets: np.ndarray,
    marks: tuple[np.ndarray, dict[int, np.ndarray]],
    backwards: bool = False,
) -> np.ndarray:
    """Return the bytes of the mark that begins (backwards: ends) at each offset, or 0."""
    short, wide = marks
    here = bytes_T[np.minimum(offsets, len(bytes_T) - 1)]
    widths = short[here].astype(np.int64)
    others = np.flatnonzero(here >= 0x80)
    for count, values in wide.items():
        first = np.maximum(offsets[others] - (count - 1 if backwards else 0), 0)
        value = np.zeros(len(others), np.uint32)
        for i in range(count):
            value = value << 8 | bytes_T[np.minimum(first + i, len(bytes_T) - 1)]
        widths[others[_is_member(value, values)]] = count
    return widths


def _decode_code_points(bytes_T: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the code points at the offsets; 0 for those beyond the basic multilingual plane."""
    one, two, three = (
        bytes_T[np.minimum(offsets + i, len(bytes_T) - 1)].astype(np.int64) for i in range(3)
    )
    codes = np.where(one < 0x80, one, ((one & 0x1F) << 6) | (two & 0x3F))
    codes = np.where(
        one >= 0xE0, ((one & 0x0F) << 12) | ((two & 0x3F) << 6) | (three & 0x3F), codes
    )
    return np.where(one >= 0xF0, 0, codes)
