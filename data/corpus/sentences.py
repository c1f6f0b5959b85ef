"""Sentence boundaries by one documented rule, over megabytes of text at once.

A sentence ends
1. at a blank line, and at every line break, unless the document is hard-wrapped: unless fewer than one in ten of its
   lines is longer than 100 characters;
2. at white space behind `.` `!` `?` `…` and their like in other scripts, and any closing quotes or brackets, if the
   next letter, behind opening marks, is not a lower-case one; but not behind the full stop of an abbreviation (Mr.
   Prof. vs.), of a single letter other than I (J. S. Mill, e.g. U.S.), or of No. pp. and the like before a digit;
3. behind `。` `！` `？` `｡` and closing brackets, white space or not;
4. after LONGEST bytes at the latest, at white space where there is some: what is longer is no sentence.

A sentence never spans two documents. The rule knows English abbreviations; elsewhere it splits a little too often.
It works on UTF-8 bytes with numpy: a regular expression over strings would take half as long as the encoder itself.
"""

import functools
import re
from collections.abc import Iterator, Sequence

import numpy as np

JOINT = b"\n\n"  # between documents: a blank line, which ends a sentence by rule 1
WRAPPED = 100  # characters
LONGEST = 8192  # bytes
WHITE = bytes(range(0x21))  # control characters count as white space
ALWAYS = (
    "Mr Mrs Ms Messrs Mme Mlle Dr Prof Rev Hon St Sr Jr Gen Col Maj Capt Lt Sgt Adm Gov Sen Rep Pres Mt Ft vs cf viz "
    "al Inc Ltd Co Corp Bros Esq approx dept Dept Univ Jan Feb Apr Aug Sept Oct Nov Dec"
).split()
BEFORE_DIGITS = "No no Nos nos pp Vol vol Fig fig Figs Eq eq Ch ch Sec sec Art art Pt Bk ver Mar Jun Jul Sep".split()
TERMINATORS = ".!?…؟۔।॥。！？｡"
CLOSERS = "\"')]}*_”’»›）」』"
OPENERS = "\"'([{*_“‘«‹„¿¡（「『—–"
WIDE = re.compile("(?:。|！|？|｡)+(?:”|’|」|』|）)*".encode())
WINDOW = 8  # bytes in front of a full stop that are looked at; an abbreviation has fewer letters


def sentence_spans(text: bytes, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets (starts, ends), int64, of the sentences of `text`, and those of the starts that rule 4 made.

    text: non-empty documents in UTF-8, stripped of WHITE, joined by JOINT; documents: their offsets.
    """
    bytes_T = np.frombuffer(text, np.uint8)
    white_T = bytes_T <= WHITE[-1]
    edges = np.flatnonzero(white_T[1:] != white_T[:-1]) + 1
    gaps, behind = edges[0::2], edges[1::2]  # white space is at [gaps[i], behind[i])
    breaks = np.flatnonzero(bytes_T == 0x0A)
    in_gap = np.searchsorted(gaps, breaks, "right") - 1
    eligible = _tables().may_end[bytes_T[gaps - 1]]
    eligible[in_gap] = True
    few = np.flatnonzero(eligible)  # one gap in fifteen; all that follows is about these
    gaps, behind, in_gap = gaps[few], behind[few], np.searchsorted(few, in_gap)
    ends_here = _at_lines(bytes_T, gaps, breaks, in_gap, documents)
    others = np.flatnonzero(~ends_here)
    ends_here[others] = _at_punctuation(bytes_T, gaps[others], behind[others])
    starts, ends = behind[ends_here], gaps[ends_here]
    if len(wide := _at_wide(text, white_T)):
        starts, ends = (
            np.sort(np.concatenate([starts, wide])),
            np.sort(np.concatenate([ends, wide])),
        )
    return _cut_long(text, np.append(0, starts), np.append(ends, len(text)))


def pair_spans(text: bytes, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `sentence_spans`, of documents that are a pair each, a line a side (data/corpus/readers.py): the sides, whatever is in them."""
    breaks = np.flatnonzero(np.frombuffer(text, np.uint8) == 0x0A)[
        :: 1 + len(JOINT)
    ]  # a joint is two of the same
    starts = np.stack([documents, breaks + 1], axis=1).ravel()
    ends = np.stack([breaks, np.append(documents[1:] - len(JOINT), len(text))], axis=1).ravel()
    return starts, ends, np.zeros(0, np.int64)


def _at_lines(bytes_T, gaps, breaks, in_gap, documents):
    """Rule 1, for each gap; a line break is at each of `breaks`, which is in the gap of that index."""
    count = np.bincount(in_gap, minlength=len(gaps))
    first, last = np.append(0, breaks + 1), np.append(breaks, len(bytes_T))
    document = np.searchsorted(documents, first, "right") - 1
    within = np.flatnonzero(
        (bytes_T & 0xC0) == 0x80
    )  # characters are counted, so all bytes of one but its first are not
    long = last - first - (np.searchsorted(within, last) - np.searchsorted(within, first)) > WRAPPED
    lines = np.bincount(document[last > first], minlength=len(documents))
    wrapped = 10 * np.bincount(document[long], minlength=len(documents)) < lines
    single = np.flatnonzero(count == 1)
    ends_here = count > 1
    ends_here[single] = ~wrapped[np.searchsorted(documents, gaps[single], "right") - 1]
    return ends_here


def _at_punctuation(bytes_T, gaps, behind):
    """Rule 2, for gaps that may follow a terminator or a closing mark."""
    last, closed = gaps - 1, np.zeros(len(gaps), np.bool_)
    for _ in range(4):
        width = _widths(bytes_T, last, _tables().closers, backwards=True)
        if not width.any():
            break
        last, closed = last - width, closed | (width > 0)
    ends_here = _widths(bytes_T, last, _tables().terminators, backwards=True) > 0
    following = behind
    for _ in range(3):
        width = _widths(bytes_T, following, _tables().openers)
        if not width.any():
            break
        following = following + width
    codes = _codes(bytes_T, following)
    ends_here &= ~_tables().lower[codes]
    stops = np.flatnonzero(ends_here & ~closed & (bytes_T[last] == ord(".")))
    digit = (codes[stops] >= ord("0")) & (codes[stops] <= ord("9"))
    ends_here[stops] = ~_abbreviated(bytes_T, last[stops], digit)
    return ends_here


def _abbreviated(bytes_T, stops, before_digit):
    """For full stops at `stops`: whether they belong to the word in front of them."""
    at = stops[:, None] - np.arange(1, WINDOW + 1)  # backwards
    seen = np.where(at >= 0, bytes_T[np.maximum(at, 0)], 0)
    letters = np.logical_and.accumulate(_tables().letter[seen], axis=1)
    words = np.where(letters, seen, 0).astype(np.uint8).view("<u8")[:, 0]
    initial = letters[:, 0] & ~letters[:, 1] & ((seen[:, 0] != ord("I")) | (seen[:, 1] == ord(".")))
    return (
        initial
        | _among(words, _tables().always)
        | (before_digit & _among(words, _tables().before_digits))
    )


def _at_wide(text: bytes, white_T):
    """Rule 3: offsets behind a full stop of Chinese or Japanese, where no white space follows."""
    if not any(
        lead in text for lead in (b"\xe3", b"\xef")
    ):  # one byte is found ten times faster than three
        return np.zeros(0, np.int64)
    found = np.array([match.end() for match in WIDE.finditer(text)], np.int64)
    found = found[found < len(text)]
    return found[~white_T[found]]


def _cut_long(text: bytes, starts, ends):
    """Rule 4."""
    long = np.flatnonzero(ends - starts > LONGEST)
    if not len(long):
        return starts, ends, long
    pieces = [[(a, b)] for a, b in zip(starts.tolist(), ends.tolist())]
    for i in long:
        pieces[i] = list(cut(text, int(starts[i]), int(ends[i]), LONGEST))
    spans = np.array([span for group in pieces for span in group], np.int64)
    made = np.array([start for i in long for start, _ in pieces[i][1:]], np.int64)
    return spans[:, 0].copy(), spans[:, 1].copy(), made


def cut(text: bytes, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    """Spans of at most `longest` bytes that are text[start:end], cut at white space or between characters."""
    while end - start > longest:
        at = max(text.rfind(space, start + 1, start + longest) for space in (b" ", b"\n", b"\t"))
        if at < 0:
            at = start + longest
            while at > start + 1 and text[at] & 0xC0 == 0x80:
                at -= 1
        stop = start + len(text[start:at].rstrip(WHITE))
        if stop > start:
            yield start, stop
        while at < end and text[at] <= WHITE[-1]:
            at += 1
        start = at
    if end > start:
        yield start, end


class _Tables:
    """What a byte or a code point is; made once."""

    def __init__(self):
        codes = np.arange(256)
        self.letter = np.isin(codes, list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        self.closers, self.openers, self.terminators = map(_marks, (CLOSERS, OPENERS, TERMINATORS))
        self.may_end = np.isin(codes, [mark.encode()[-1] for mark in TERMINATORS + CLOSERS])
        self.lower = np.array([chr(code).islower() for code in range(1 << 16)])
        self.always, self.before_digits = map(_keys, (ALWAYS, BEFORE_DIGITS))


@functools.cache
def _tables() -> _Tables:
    return _Tables()


def _marks(marks: str) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Of some punctuation: a table of its ASCII bytes; the rest by number of UTF-8 bytes, as big-endian integers."""
    encoded = [mark.encode() for mark in marks]
    short = np.isin(np.arange(256), [mark[0] for mark in encoded if len(mark) == 1])
    wide = {n: [int.from_bytes(mark, "big") for mark in encoded if len(mark) == n] for n in (2, 3)}
    return short, {n: np.sort(np.array(values, np.uint32)) for n, values in wide.items()}


def _keys(words: Sequence[str]) -> np.ndarray:
    """Words as _abbreviated sees them, backwards and one integer each, sorted."""
    return np.sort(
        np.array([int.from_bytes(word[::-1].encode(), "little") for word in words], np.uint64)
    )


def _among(values, table):
    """np.isin for a small sorted table and many values, without sorting those."""
    return table[np.minimum(np.searchsorted(table, values), len(table) - 1)] == values


def _widths(bytes_T, at, marks, backwards=False):
    """Bytes of the mark that begins (backwards: ends) at each offset; 0 where none does."""
    short, wide = marks
    here = bytes_T[np.minimum(at, len(bytes_T) - 1)]
    widths = short[here].astype(np.int64)
    others = np.flatnonzero(here >= 0x80)
    for count, values in wide.items():
        first = np.maximum(at[others] - (count - 1 if backwards else 0), 0)
        value = np.zeros(len(others), np.uint32)
        for i in range(count):
            value = value << 8 | bytes_T[np.minimum(first + i, len(bytes_T) - 1)]
        widths[others[_among(value, values)]] = count
    return widths


def _codes(bytes_T, at):
    """Code points at the offsets; those beyond the basic plane as 0."""
    one, two, three = (
        bytes_T[np.minimum(at + i, len(bytes_T) - 1)].astype(np.int64) for i in range(3)
    )
    codes = np.where(one < 0x80, one, ((one & 0x1F) << 6) | (two & 0x3F))
    codes = np.where(
        one >= 0xE0, ((one & 0x0F) << 12) | ((two & 0x3F) << 6) | (three & 0x3F), codes
    )
    return np.where(one >= 0xF0, 0, codes)
