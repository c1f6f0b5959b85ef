import numpy as np
import pytest

from data.corpus.sentences import (
    DOCUMENT_SEPARATOR,
    MAX_SENTENCE_BYTES,
    WHITESPACE,
    cut_span,
    find_sentence_spans,
)


def split_documents(*documents: str) -> list[list[str]]:
    """Return the sentences of each document."""
    raws = [document.encode() for document in documents]
    begins = np.cumsum([0] + [len(raw) + len(DOCUMENT_SEPARATOR) for raw in raws])[:-1]
    text = DOCUMENT_SEPARATOR.join(raws)
    starts, ends, _ = find_sentence_spans(text, begins)
    owner = np.searchsorted(begins, starts, "right") - 1
    assert (
        np.searchsorted(begins, ends - 1, "right") - 1 == owner
    ).all()  # no sentence spans two documents
    return [
        [text[a:b].decode() for a, b, o in zip(starts, ends, owner) if o == i]
        for i in range(len(documents))
    ]


@pytest.mark.parametrize(
    "sentences",
    [
        ["One here.", "Two there!", "Three?", "Four…", "Five."],
        ["Mr. Smith met Dr. No at St. James.", "They left."],
        ["J. S. Mill wrote it, e.g. On Liberty.", "The U.S. Army did not.", "So am I.", "No."],
        ["See No. 5 and pp. 7 to 9.", "He said no.", "She went."],
        ["“Really?” he asked.", "“Yes!”", "She left."],
        ["(It was over.)", "[Was it?]", "'It was.'", "“Good.”", "‘Now?’"],
        ["It cost 3.14 dollars at example.com today.", "More tomorrow."],
        ["And then... nothing came of it.", "End."],
        ["Il est là.", "Élan vital.", "Он пришёл.", "Да."],
        ["Он сказал т. е. подумал, и ушёл.", "Всё."],
        ["क्या यह है।", "हाँ।"],
        ["هل هذا صحيح؟", "نعم."],
        ["Wait...", "5 more.", "(2 of them.)"],
    ],
    ids=lambda sentences: sentences[0][:12],
)
def test_punctuation(sentences):
    assert split_documents(" ".join(sentences)) == [sentences]
    assert split_documents("  \t ".join(sentences)) == [sentences]


def test_chinese_and_japanese_need_no_blank():
    assert split_documents("数学は。これは「本」です！次") == [
        ["数学は。", "これは「本」です！", "次"]
    ]
    assert split_documents("「行こう。」と言った。 終") == [["「行こう。」", "と言った。", "終"]]


def test_a_blank_line_ends_a_sentence():
    assert split_documents("A title\n\nthe text goes on\n \t\nand on") == [
        ["A title", "the text goes on", "and on"]
    ]


def test_line_breaks_count_unless_the_document_is_hard_wrapped():
    long = "word " * 30
    assert split_documents(f"A title\n{long.strip()}\nlast line") == [
        ["A title", long.strip(), "last line"]
    ]
    wrapped = "\n".join(["this line was broken at seventy columns or so by an editor of old"] * 12)
    assert split_documents(wrapped) == [[wrapped]]
    # 80 Cyrillic letters are 160 bytes, but still a short line. Each document is classified by its own
    # lines.
    cyrillic = "\n".join(["слово " * 13] * 12).strip()
    assert split_documents(cyrillic, f"A title\n{long.strip()}", wrapped) == [
        [cyrillic],
        ["A title", long.strip()],
        [wrapped],
    ]


def test_documents_without_punctuation_are_not_joined():
    assert split_documents("one", "two", "three.", "four") == [
        ["one"],
        ["two"],
        ["three."],
        ["four"],
    ]


def test_a_long_sentence_is_split_at_white_space():
    text = "word " * 5000
    (parts,) = split_documents(text.strip())
    assert len(parts) > 1 and all(len(part) <= MAX_SENTENCE_BYTES for part in parts)
    assert " ".join(parts) == text.strip()


def test_a_long_sentence_without_white_space_is_split_between_characters():
    text = "数" * 50_000
    (parts,) = split_documents(text)
    assert "".join(parts) == text and all(
        len(part.encode()) <= MAX_SENTENCE_BYTES for part in parts
    )


def test_cut_keeps_every_byte_that_is_not_white():
    random = np.random.default_rng(0)
    alphabet = ["a", "b", " ", " ", "\n", "é", "数", "🙂"]
    for _ in range(300):
        raw = "".join(random.choice(alphabet, random.integers(1, 60))).encode().strip(WHITESPACE)
        longest = int(random.integers(4, 20))
        spans = list(cut_span(raw, 0, len(raw), longest))
        assert all(0 < b - a <= longest for a, b in spans)
        assert b"".join(raw[a:b] for a, b in spans).split() == [] or _drop_whitespace(
            b"".join(raw[a:b] for a, b in spans)
        ) == _drop_whitespace(raw)
        [raw[a:b].decode() for a, b in spans]  # no character is split


def test_any_text_is_covered():
    """Spans are in order, hold whole characters without surrounding white space, and leave out only
    white space.
    """
    random = np.random.default_rng(1)
    alphabet = list("abcXYZ .!?…\"'“”‘’()[]»«।؟。！」「\n\n\t 19éßДя數🙂\x0b\x1f.") + [
        "Mr.",
        " I.",
        "No. ",
    ]
    for _ in range(400):
        texts = [
            "".join(random.choice(alphabet, random.integers(1, 200)))
            for _ in range(random.integers(1, 6))
        ]
        raws = [raw for text in texts if (raw := text.encode().strip(WHITESPACE))]
        if not raws:
            continue
        begins = np.cumsum([0] + [len(raw) + len(DOCUMENT_SEPARATOR) for raw in raws])[:-1]
        text = DOCUMENT_SEPARATOR.join(raws)
        starts, ends, _ = find_sentence_spans(text, begins)
        assert (starts < ends).all() and (ends[:-1] <= starts[1:]).all()
        assert set(begins) <= set(starts)
        assert _drop_whitespace(
            b"".join(text[a:b] for a, b in zip(starts, ends))
        ) == _drop_whitespace(text)
        for a, b in zip(starts, ends):
            text[a:b].decode()
            assert text[a] > WHITESPACE[-1] and text[b - 1] > WHITESPACE[-1]


def test_pathological_text_takes_no_pathological_time():
    """Megabytes of blanks, full stops or quotes take linear time (quadratic time would be seconds)."""
    for filler in (" ", ".", '"', "”", "\n", ". ", "a\n"):
        raw = b"x" + (filler.encode() * 300_000) + b"y"
        starts, ends, _ = find_sentence_spans(raw, np.array([0]))
        assert _drop_whitespace(
            b"".join(raw[a:b] for a, b in zip(starts, ends))
        ) == _drop_whitespace(raw)


def _drop_whitespace(raw: bytes) -> bytes:
    return raw.translate(None, WHITESPACE)
