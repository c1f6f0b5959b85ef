"""Bad examples of labelled files are errors that name the remedy, or are skipped and counted."""

import json

import pytest

from data.examples import choice_questions, labelled_examples, tagged_sentences
from data.examples.bad_examples import REMEDY, BadExamples, keep_good
from data.examples.labelled_examples import Columns, parse_class, parse_score

pytestmark = pytest.mark.fast
COLUMNS = Columns(("text",), "label")


def read_texts(path, bad):
    examples = labelled_examples.read_examples(path, COLUMNS, parse_class, bad=bad)
    return [(*example.texts, example.label) for example in examples]


def read_scores(path, bad):
    examples = labelled_examples.read_examples(path, COLUMNS, parse_score, bad=bad)
    return [(*example.texts, example.label) for example in examples]


def read_tags(path, bad):
    sentences = tagged_sentences.read_sentences(path, bad=bad)
    return [(sentence.words, sentence.tags) for sentence in sentences]


def read_choices(path, bad):
    return [
        (question.texts[0], question.label)
        for question in choice_questions.read_questions(path, bad=bad)
    ]


def choice(**more):
    return json.dumps({"context": "a", "choices": ["b", "c"], "label": 1} | more)


CASES = {
    "tsv": (
        read_texts,
        "a.tsv",
        "text\tlabel\na\tx\nno tab\nb\ty\n\tx\nc\tx\ty\n",
        [("a", "x"), ("b", "y")],
        3,
        "a.tsv:3: 1 columns, the first line names 2",
    ),
    "csv": (
        read_texts,
        "a.csv",
        'text,label\na,x\n"b" c,x\nb,y\nd\n',
        [("a", "x"), ("b", "y")],
        2,
        "a.csv:3: ',' expected after '\"'",
    ),
    "jsonl": (
        read_texts,
        "a.jsonl",
        '{"text": "a", "label": "x"}\n{"text": \n[]\n{"text": "b"}\n{"text": "b", "label": 2}\n',
        [("a", "x"), ("b", "2")],
        3,
        "a.jsonl:2: not JSON",
    ),
    "scores": (read_scores, "a.tsv", "text\tlabel\na\t1\nb\tx\n", [("a", 1)], 1, "a.tsv:3: column"),
    "conll": (
        read_tags,
        "a.conll",
        "the O\nfox B-a\n\nno\nfox B-a\n\na b c\n\na O\n",
        [(("the", "fox"), ("O", "B-a")), (("a",), ("O",))],
        2,
        "a.conll:4: columns: 1",
    ),
    "words": (
        read_tags,
        "a.jsonl",
        '{"words": ["a"], "tags": ["O"]}\n{"words": ["a", "b"], "tags": ["O"]}\n',
        [(("a",), ("O",))],
        1,
        "a.jsonl:2: 2 words, 1 tags",
    ),
    "choices": (
        read_choices,
        "a.jsonl",
        "\n".join([choice(), choice(label=2), choice(choices=["b", "c", "d"]), "x", choice()]),
        [("a", "1"), ("a", "1")],
        3,
        "a.jsonl:2: 'label' is 2",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_lines(tmp_path, name, capsys):
    read, file, text, expected, count, first = CASES[name]
    (path := tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=first) as error:
        read(str(path), None)
    assert REMEDY not in str(error.value)  # a verb without the flag
    with pytest.raises(ValueError, match=f"{first}.*; {REMEDY}"):
        read(str(path), BadExamples(str(path)))
    bad = BadExamples(str(path), skip=True)
    assert read(str(path), bad) == expected and bad.count == count
    bad.report()
    assert capsys.readouterr().err.startswith(
        f"{path}: skipped {count} bad examples, the first: {tmp_path}/{first}"
    )


def test_nothing_is_left_or_nothing_was_bad(tmp_path, capsys):
    (path := tmp_path / "a.tsv").write_text("text\tlabel\n\tx\n")
    with pytest.raises(ValueError, match="a.tsv: no examples in it; skipped 1 bad examples, the f"):
        read_texts(str(path), BadExamples(str(path), skip=True))
    BadExamples("a").report()
    assert capsys.readouterr().err == ""
    bad = BadExamples("a", skip=True)
    assert keep_good(["1", "x", "2"], int, bad) == ["1", "2"] and bad.count == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('text,label\na,x\n"b,y\nc,x\n', "a.csv:3: unexpected end of data"),
        ('"text" b,label\na,x\n', "a.csv:1: ',' expected after"),
        ("text,text\na,x\n", "a.csv:1: the line of names has one twice"),
    ],
)
def test_what_leaves_nothing_to_go_on_with_is_refused_anyway(tmp_path, text, message):
    """A quote that is not closed takes the rest of the file; without names no line can be read."""
    (path := tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_texts(str(path), BadExamples(str(path), skip=True))
