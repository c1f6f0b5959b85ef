"""Labelled files as people write them: flags as text, comments, wrong tags, carriage returns."""

import json

import pytest

from data.examples import choice_questions, labelled_examples, qa, tagged_sentences
from data.examples.bad_examples import BadExamples
from data.examples.labelled_examples import Columns, parse_class

pytestmark = pytest.mark.fast

SENTENCES = "".join(f"Acme{i} B-ORG\nin O\nParis B-LOC\n\n" for i in range(8))


def write(path, text):
    path.write_text(text, newline="")
    return str(path)


@pytest.mark.parametrize(
    ("flag", "is_answered"),
    [
        *((flag, False) for flag in (True, "True", "true", " TRUE ", "1", 1, 1.0)),
        *((flag, True) for flag in (False, "False", "false", "0", 0, 0.0, None, "")),
    ],
)
def test_flags_are_read_in_every_form(tmp_path, flag, is_answered):
    record = {"context": "The fox.", "question": "Who?", "is_impossible": flag}
    record["answers"] = {"text": ["fox"], "answer_start": [4]}
    path = write(tmp_path / "a.jsonl", json.dumps(record) + "\n")
    (question,) = qa.read_questions(path, unanswerable=True)
    assert bool(question.answers) == is_answered


@pytest.mark.parametrize("flag", ["maybe", "no", 2, 0.5, [], {}, "null"])
def test_other_flags_are_refused(tmp_path, flag):
    record = {"context": "The fox.", "question": "Who?", "answer": "fox", "answer_start": 4}
    good, wrong = (json.dumps(record | {"is_impossible": each}) for each in (False, flag))
    path = write(tmp_path / "a.jsonl", f"{good}\n{wrong}\n")
    with pytest.raises(ValueError, match=":2: column 'is_impossible' is .*; expected true or fal"):
        qa.read_questions(path, True)
    bad = BadExamples(path, skip=True)
    assert len(qa.read_questions(path, True, bad)) == 1 and bad.count == 1


def test_a_table_has_flags_as_text(tmp_path):
    rows = ["question\tcontext\tanswer\tanswer_start\tis_impossible"]
    rows += [f"Who?\tThe fox.\tfox\t4\t{flag}" for flag in ("False", "True", "0", "1", "")]
    found = qa.read_questions(write(tmp_path / "a.tsv", "\n".join(rows)), unanswerable=True)
    assert [bool(question.answers) for question in found] == [True, False, True, False, True]


@pytest.mark.parametrize(
    "more", [{"context": False}, {"context": 0}, {"question": []}, {"sent1": "a", "sent2": 0}]
)
def test_a_text_that_is_no_text_is_not_left_out(tmp_path, more):
    record = {"context": "a", "question": "b", "choices": ["c", "d"], "label": 0} | more
    if "sent1" in more:
        record |= {"ending0": "c", "ending1": "d"}
    with pytest.raises(ValueError, match=f"'{list(more)[-1]}' is .*, not a text"):
        choice_questions.read_questions(write(tmp_path / "a.jsonl", json.dumps(record)))


def test_no_list_of_further_answers_is_refused(tmp_path):
    record = {"context": "The fox.", "question": "Who?", "answer": "fox", "answer_start": 4}
    path = write(tmp_path / "a.jsonl", json.dumps(record | {"validators": False}))
    with pytest.raises(ValueError, match="column 'validators' is not a list"):
        qa.read_questions(path, False)


@pytest.mark.parametrize("wrong", ["0", "'", "B_LOC", "b-loc", "LOC"])
def test_one_wrong_tag_is_a_bad_sentence_and_not_another_scheme(tmp_path, wrong):
    text = SENTENCES + f"Rome {wrong}\nand O\n"
    path = write(tmp_path / "a.conll", text)
    sentences = tagged_sentences.read_sentences(path)
    message = f"a.conll:33: {wrong!r} is not a tag of bio, .*plain for names"
    with pytest.raises(ValueError, match=message):
        tagged_sentences.choose_scheme(sentences)
    bad = BadExamples(path, skip=True)
    scheme, good = tagged_sentences.choose_scheme(sentences, None, bad)
    assert scheme == "bio" and good == sentences[:-1] and bad.count == 1
    assert tagged_sentences.choose_scheme(sentences, "plain") == ("plain", sentences)


def test_names_that_spell_no_entities_are_still_plain(tmp_path):
    for text in ("a NN\nb VB\nc -LRB-\n", "a O\nb Person\nc Place\n", "a X\nb O\nc Y\n"):
        sentences = tagged_sentences.read_sentences(write(tmp_path / "a.conll", text))
        assert tagged_sentences.choose_scheme(sentences)[0] == "plain"


def test_comments_before_a_sentence_are_skipped(tmp_path):
    text = (
        "# global.columns = A B C D\n# id = 0\nAcme X Y B-ORG\n# X Y O\n\n#id = 1\nRome X Y B-LOC"
    )
    sentences = tagged_sentences.read_sentences(write(tmp_path / "a.conll", text))
    assert [one.words for one in sentences] == [("Acme", "#"), ("Rome",)]
    assert sentences[0].line == 3 and sentences[1].line == 7
    first = tagged_sentences.read_sentences(write(tmp_path / "b.conll", "# O\nRome B-LOC\n"))
    assert first[0].words == ("#", "Rome")  # a word, as it has a tag


def test_a_carriage_return_within_a_column_is_a_blank(tmp_path):
    text = "text\tlabel\r\n" + "".join(f"a clear\rtext {i}\t{i % 2}\r\n" for i in range(4))
    path = write(tmp_path / "a.tsv", text)
    found = labelled_examples.read_examples(path, Columns(("text",), "label"), parse_class)
    assert [one.texts[0] for one in found] == [f"a clear text {i}" for i in range(4)]
    assert [one.location for one in found] == [f"{path}:{line}" for line in range(2, 6)]
    path = write(tmp_path / "a.conll", "a\rb O\r\nParis B-LOC\r\n\r\nx O\r\n")
    sentences = tagged_sentences.read_sentences(path)
    assert [one.words for one in sentences] == [("a b", "Paris"), ("x",)]
    ((_, first), _) = tagged_sentences.read_column_records(path)
    assert first == {"words": ["a b", "Paris"], "tags": ["O", "B-LOC"]}


def test_one_question_of_a_pair_may_be_empty(tmp_path):
    """As in GLUE's QQP; a single text, or both, may not."""
    columns = Columns(("question1", "question2"), "label")
    path = write(tmp_path / "a.tsv", "question1\tquestion2\tlabel\nHow?\t\t0\n\tWhat?\t1\n")
    found = labelled_examples.read_examples(path, columns, parse_class)
    assert [one.texts for one in found] == [("How?", ""), ("", "What?")]
    path = write(tmp_path / "b.tsv", "question1\tquestion2\tlabel\n \t\t0\n")
    with pytest.raises(ValueError, match="b.tsv:2: column 'question1' is empty"):
        labelled_examples.read_examples(path, columns, parse_class)
    path = write(tmp_path / "c.jsonl", '{"question1": "How?", "question2": null, "label": 0}')
    with pytest.raises(ValueError, match="column 'question2' is NoneType, not a text"):
        labelled_examples.read_examples(path, columns, parse_class)
