"""`predict` reads a file by its extension, as `finetune` read the training file, and refuses what
it would misread.
"""

import gzip
import json
from types import SimpleNamespace

import pytest

from data.objectives import AnswerSpan, Classification, MaskedLm, Tagging
from data.objectives.text2text import Text2Text
from pretrain.inference.record_files import (
    get_text,
    iterate_records,
    make_readers,
    open_line_writer,
    read_records,
)
from pretrain.inference.tasks import predict_tags

pytestmark = pytest.mark.fast

SQUAD = (
    '{"data": [{"paragraphs": [{"context": "a fox", "qas": [{"id": "q7", "question": "Who?"}]}]}]}'
)
QUESTION = [{"id": "q7", "question": "Who?", "context": "a fox"}]
CONLL = "-DOCSTART- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n"
TAGGED = [
    {"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
    {"words": ["Peter"], "tags": ["B-PER"]},
]
TAGS, ASKS = (
    (Tagging(length=16), Text2Text(scheme="bio", kinds=("ORG",))),
    (AnswerSpan(), Text2Text(questions="squad")),
)
OTHERS = MaskedLm(length=16), Classification(length=16), Text2Text()


def list_records(path, objective):
    return list(
        iterate_records(
            path, make_readers(SimpleNamespace(data=SimpleNamespace(objective=objective)))
        )
    )


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text", "objectives", "records"),
    [
        ("a.txt", "\ufeffa fox\r\n\nb\tc\n", (*OTHERS, *TAGS, *ASKS),
         [{"text": "a fox"}, {"text": ""}, {"text": "b\tc"}]),
        ("a.en", "a,b\n", OTHERS, [{"text": "a,b"}]),
        ("a.jsonl", '{"text": "a", "n": 1}\n', (*OTHERS, *TAGS, *ASKS), [{"text": "a", "n": 1}]),
        ("a.csv", 'text,label\n"a, b",1\n', (*OTHERS, *TAGS, *ASKS), [{"text": "a, b", "label": "1"}]),
        ("a.tsv", 'text\tlabel\n"a\t1\n', (*OTHERS, *ASKS), [{"text": '"a', "label": "1"}]),
        ("a.tsv", CONLL, TAGS, TAGGED),
        ("a.conll", CONLL, TAGS, TAGGED),
        ("a.conll", "EU\nrejects\n\nPeter\n", TAGS, [{"words": one["words"]} for one in TAGGED]),
        ("a.json", SQUAD, ASKS, QUESTION),
    ],
)  # fmt: skip
def test_a_file_is_read_by_its_name(tmp_path, end, name, text, objectives, records):
    path = tmp_path / (name + end)
    path.write_bytes(gzip.compress(text.encode()) if end else text.encode())
    for objective in objectives:
        found = list_records(path, objective)
        assert [record for _, record in found] == records and all(
            place.startswith(f"{path}:") for place, _ in found
        )


def test_unsuitable_files_are_refused(tmp_path):
    (tmp_path / "a.conll").write_text(CONLL)
    (tmp_path / "a.json").write_text(SQUAD)
    (tmp_path / "b.conll").write_text("EU\nrejects O\n")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a fox " * 99)[:-9])
    (tmp_path / "b.tsv").write_text("a fox\tthe dog\nb\tc\n")
    for name, objectives, message in (
        ("a.conll", (*OTHERS, *ASKS),
         r"a.conll: columns of words are read by models that tag them; this one reads .jsonl, .tsv, .csv"),
        ("a.json", (*OTHERS, *TAGS),
         "a.json: SQuAD's form is read by models that answer questions; this one reads .jsonl"),
        ("b.conll", TAGS, r"b.conll:2: columns: 2 \('rejects O'\); expected 1, as the first word's line has"),
        ("a.txt.gz", OTHERS, "a.txt.gz: the gzip file is broken or cut off"),
        ("absent", OTHERS, "absent: no such file"),
    ):  # fmt: skip
        for objective in objectives:
            with pytest.raises((ValueError, FileNotFoundError), match=message):
                list_records(tmp_path / name, objective)
    with pytest.raises(
        ValueError,
        match="b.tsv:2: expected an object with the field text, a string; this has 'a fox', 'the dog'",
    ):
        list(read_records(tmp_path / "b.tsv"))


def test_conll_columns_need_no_names(tmp_path):
    """The names of the training file's columns come first."""
    (tmp_path / "a.conll").write_text(CONLL)
    objective = Tagging(columns=("toks", "ner"))
    read = predict_tags.make_reader(
        SimpleNamespace(run=SimpleNamespace(data=SimpleNamespace(objective=objective)))
    )
    assert [
        read(record, place) for place, record in list_records(tmp_path / "a.conll", objective)
    ] == [
        ("EU", "rejects"),
        ("Peter",),
    ]
    assert read({"words": ["a"], "toks": ["b", "c"]}, None) == ("b", "c")


def test_half_of_a_character_is_refused_as_a_text_and_written_as_its_escape(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"^here: the field text has half of a character in it"):
        get_text({"text": "a \ud83d b"}, "here")
    line = json.dumps({"title": "a \ud83d b"}, ensure_ascii=False)
    for path in (None, tmp_path / "a.jsonl"):
        with open_line_writer(path) as write:
            write(line)
    written = capsys.readouterr().out
    assert written == (tmp_path / "a.jsonl").read_text(encoding="utf-8")
    assert json.loads(written) == {"title": "a \ud83d b"}
