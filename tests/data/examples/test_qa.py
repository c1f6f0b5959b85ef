"""Questions in several formats are the same, errors name their place, and windows equal those of a
slow reference.
"""

import gzip
import json

import numpy as np
import pytest

from data.config import Data
from data.corpus import tfds_source
from data.examples import labelled_store
from data.examples import qa as questions
from data.examples.bad_examples import BadExamples
from data.examples.qa import read_questions
from data.examples.qa_store import encode_questions
from data.inspection.batch_report import inspect_batches
from data.objectives import AnswerSpan, Classification
from data.pipeline import Stream
from data.store.qa_reader import open_questions, read_question_texts
from data.store.reader import Store
from data.vocabulary.load import read_vocabulary
from tests.store_files import generation_folder

CONTEXT = "\tThe  Ünïcode\u00a0fox, ﬁnally\ud83d, ran 12½ km 😀 home to 数学. "
ANSWERS = [("Ünïcode\u00a0fox", CONTEXT.index("Ü")), ("fox", CONTEXT.index("fox"))]
PAIRS = [{"text": text, "answer_start": start} for text, start in ANSWERS]
COLUMNS = {"text": [text for text, _ in ANSWERS], "answer_start": [start for _, start in ANSWERS]}
NESTED = {
    "version": "v2.0",
    "data": [
        {
            "title": "Foxes",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "a",
                            "question": " Who ran?\n",
                            "answers": PAIRS,
                            "is_impossible": False,
                        },
                        {
                            "id": "b",
                            "question": "Who sat?",
                            "answers": PAIRS,
                            "is_impossible": True,
                        },
                    ],
                }
            ],
        }
    ],
}
FLAT = [
    {"id": "a", "context": CONTEXT, "question": " Who ran?\n", "answers": COLUMNS},
    {"id": "b", "context": CONTEXT, "question": "Who sat?", "answers": {"text": [], "answer_start": []}},
]  # fmt: skip


def write_content(path, content):
    text = content if isinstance(content, str) else json.dumps(content)
    text = "".join(json.dumps(row) + "\n" for row in content) if isinstance(content, list) else text
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def test_forms_are_the_same_questions(tmp_path, monkeypatch):
    listed = [FLAT[0] | {"answers": PAIRS}, FLAT[1] | {"answers": []}]
    files = {"a.json": NESTED, "b.json.gz": NESTED, "c.jsonl": FLAT, "d.jsonl.gz": listed}
    for name, content in files.items():
        path = write_content(tmp_path / name, content)
        found = read_questions(path, unanswerable=True)
        assert [one[:4] for one in found] == [
            ("a", "Who ran?", CONTEXT, tuple(ANSWERS)),
            ("b", "Who sat?", CONTEXT, ()),
        ]
        assert [one.location for one in found] == (
            [f"{path}:1", f"{path}:2"]
            if content is not NESTED
            else [f"{path}: question a", f"{path}: question b"]
        )
        assert len(found[0].readable_context) == len(CONTEXT) and not {"\ud83d", "\t"} & set(
            found[0].readable_context
        )
    one = {
        "context": CONTEXT,
        "question": "Who ran?",
        "answer": "fox",
        "answer_start": ANSWERS[1][1],
    }
    (qamr,) = read_questions(
        write_content(tmp_path / "e.jsonl", [one | {"validators": ["the fox", "fox"]}]),
        unanswerable=False,
    )
    assert (
        qamr.answers == (ANSWERS[1], ("the fox", None), ("fox", None))
        and qamr.id == f"{tmp_path}/e.jsonl:1"
    )
    (table,) = read_questions(
        write_content(
            tmp_path / "f.tsv", "question\tcontext\tanswer\tanswer_start\nWho?\tThe fox.\tfox\t4\n"
        ),
        unanswerable=False,
    )
    assert table[:4] == (f"{tmp_path}/f.tsv:2", "Who?", "The fox.", (("fox", 4),))
    arrays = {"text": np.array([b"fox"], object), "answer_start": np.array([4], np.int32)}
    record = {
        "id": "x",
        "context": "The fox.",
        "question": "Who?",
        "answers": arrays,
        "is_impossible": np.False_,
    }
    monkeypatch.setattr(tfds_source, "read_records", lambda source: [("there[0]", record)])
    assert read_questions("tfds:squad", unanswerable=False)[0][:4] == (
        "x",
        "Who?",
        "The fox.",
        (("fox", 4),),
    )


def make_question(**changes):
    return {
        key: value
        for key, value in (
            {"context": "The fox.", "question": "Who?", "answer": "fox", "answer_start": 4}
            | changes
        ).items()
        if value is not ...
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", [make_question(), make_question(answer_start=3)],
         r"a.jsonl:2: the answer 'fox' is not at character 3 .* which has ' fo' there; it is at 4; --on-bad"),
        ("a.jsonl", [make_question(answer="dog")],
         r"a.jsonl:1: the answer 'dog' is not at character 4 .*, which has 'fox' there; it is nowhere in the context"),
        ("a.jsonl", [make_question(answer=" ", answer_start=3)], "a.jsonl:1: an answer is empty"),
        ("a.jsonl", [make_question(answer_start=4.0)], "a.jsonl:1: answer_start is 4.0, not the number of a character"),
        ("a.jsonl", [make_question(answer_start=-1)], "a.jsonl:1: answer_start is -1, not the number of a character"),
        ("a.jsonl", [make_question(answer=3)], "a.jsonl:1: an answer is int, not a text"),
        ("a.jsonl", [make_question(answer=None)], "a.jsonl:1: it has no answer; --task squad2 allows"),
        ("a.jsonl", [make_question(answer_start=...)],
         "a.jsonl:1: no column 'answers', nor 'answer' with 'answer_start'; there are 'context', 'question', 'answer'"),
        ("a.jsonl", [make_question(question=...)],
         "a.jsonl:1: no column 'question'; there are 'context', 'answer', 'answer_start'"),
        ("a.jsonl", [make_question(question=" \n")], "a.jsonl:1: column 'question' is empty"),
        ("a.jsonl", [make_question(context="")], "a.jsonl:1: column 'context' is empty"),
        ("a.jsonl", [make_question(context=["a"])], "a.jsonl:1: column 'context' is list, not a text"),
        ("a.jsonl", [make_question(validators="fox")], "a.jsonl:1: column 'validators' is not a list"),
        ("a.jsonl", [make_question(answers={"text": ["fox"], "answer_start": []})],
         r"a.jsonl:1: 1 texts of answers, but 0 starts"),
        ("a.jsonl", [make_question(answers=["fox"])], "a.jsonl:1: column 'answers' is neither"),
        ("a.jsonl", "\n", "a.jsonl: no questions in it"),
        ("a.json", "", r"a.json: not JSON \(the file is empty: "),
        ("a.json", '{"a": 1}\n{"a": 2}\n', "a.json: not JSON .*; a file with an object a line ends in .jsonl"),
        ("a.json", {"data": []}, "a.json: no questions in it"),
        ("a.json", {"data": {}}, "a.json: no list `data`; SQuAD's form is"),
        ("a.json", {"data": [{"paragraphs": [{"context": "a"}]}]}, "a.json: article 1, paragraph 1: no list `qas`"),
        ("a.json", {"data": [{"paragraphs": [{"qas": []}]}]}, "a.json: article 1, paragraph 1: no `context`"),
        ("a.json", {"data": [{"paragraphs": [{"context": "a", "qas": [3]}]}]},
         "a.json: article 1, paragraph 1: question 1 is not an object"),
        (
            "a.json",
            {
                "data": [
                    {
                        "paragraphs": [
                            {
                                "context": "The fox.",
                                "qas": [
                                    {
                                        "id": "56be",
                                        "question": "Who?",
                                        "answers": [{"text": "ox", "answer_start": 4}],
                                    }
                                ],
                            }
                        ]
                    }
                ]
            },
            "a.json: question 56be: the answer 'ox' is not at character 4",
        ),
        ("a.json", {"data": [{"paragraphs": [{"context": "The fox.", "qas": [{"question": "Who?", "answers": []}]}]}]},
         "a.json: article 1, paragraph 1, question 1: it has no answer"),
    ],
)  # fmt: skip
def test_errors_are_reported_with_its_place(tmp_path, name, content, message):
    path = write_content(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        read_questions(path, False, BadExamples(path))


@pytest.mark.parametrize("texts", ["fox", None, 3])
def test_answers_that_are_no_list_can_be_left_out(tmp_path, texts):
    record = make_question(answers={"text": texts, "answer_start": [0]})
    path = write_content(tmp_path / "a.jsonl", [make_question(id="c"), record])
    bad = BadExamples(path, skip=True)
    assert [one.id for one in read_questions(path, False, bad)] == ["c"] and bad.count == 1
    with pytest.raises(ValueError, match=":2: column 'answers': 'text' is .*, not a list"):
        read_questions(path, False, BadExamples(path))


def test_bad_answers_can_be_left_out(tmp_path):
    path = write_content(
        tmp_path / "a.jsonl", [make_question(), make_question(answer="dog"), make_question(id="c")]
    )
    bad = BadExamples(path, skip=True)
    found = read_questions(path, False, bad)
    assert [one.id for one in found] == [f"{path}:1", "c"] and bad.count == 1
    path = write_content(tmp_path / "b.jsonl", [make_question(answer="dog")])
    with pytest.raises(
        ValueError, match="no questions in it; skipped 1 bad examples, the first: .*b.jsonl:1: the"
    ):
        read_questions(path, False, BadExamples(path, skip=True))
    with pytest.raises(FileNotFoundError, match="c.json: no such file"):
        read_questions(str(tmp_path / "c.json"), unanswerable=False)
    for name, content, message in (
        ("d.json.gz", gzip.compress(b"")[:10] + b"\xff" * 20, "d.json.gz: the gzip file is broken or cut off"),
        ("e.json", b'{"data":\n\n"\xe9"}', "e.json:3: not UTF-8"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_questions(str(tmp_path / name), unanswerable=False)


def test_a_share_keeps_contexts_together():
    some = [
        questions.Question("", f"q{i}", f"context {i // 4}", (), f"here:{i}") for i in range(200)
    ]
    train, held = labelled_store.split_examples(some, 0.2)
    assert held and not {one.context for one in train} & {one.context for one in held}


@pytest.mark.parametrize("kind", ["sentencepiece", "byte_bpe", "wordpiece"])
def test_pieces_know_their_characters(kind, vocabulary, byte_bpe, wordpiece):
    known = {
        "sentencepiece": vocabulary,
        "byte_bpe": read_vocabulary(byte_bpe),
        "wordpiece": read_vocabulary(wordpiece),
    }[kind]
    contexts = [CONTEXT, "the  walking walked", "x"]
    some = [
        questions.Question("", "the walk", context, (), "here")
        for context in contexts
        for _ in range(2)
    ]
    found = encode_questions(known, some[:1] + some[2:])
    ids = known.encode_batch([one.readable_context for one in some])
    for number, one in enumerate(some[:1] + some[2:]):
        asked, asked_end, first, last = found.spans_Q6[number, :4].tolist()
        assert found.tokens[asked:asked_end].tolist() == known.encode("the walk")
        assert found.tokens[first:last].tolist() == ids[some.index(one)]
        pieces = [
            one.context[a:b] for a, b in zip(found.begins_T[first:last], found.ends_T[first:last])
        ]
        assert all(piece == piece.strip() for piece in pieces)
        seen = set().union(
            *(range(a, b) for a, b in zip(found.begins_T[first:last], found.ends_T[first:last]))
        )
        solid = {i for i, character in enumerate(one.readable_context) if not character.isspace()}
        assert solid - seen <= (
            set()
            if kind != "wordpiece"
            else {i for i in solid if one.readable_context[i] == "\ufffd"}
        )  # which it deletes
    # Every token that has a character of the answer, and no other.
    walking = questions.Question("", "the", "the  walking walked", (("alking", 6),), "here")
    a, b = encode_questions(known, [walking]).spans_Q6[0, 4:]
    assert known.decode(encode_questions(known, [walking]).tokens[a:b].tolist()).strip() in (
        "walking",
        "alking",
    )
    beside = encode_questions(
        known, [questions.Question("", "the", "walk.walk", (("walk", 0),), "here")]
    )
    assert known.decode(beside.tokens[slice(*beside.spans_Q6[0, 4:])].tolist()).strip() == "walk"


def slow_windows(spans, tokens, objective, vocabulary):
    """Build the rows of questions one by one, as (ids, start, end, question, skipped)."""
    rows = []
    for number, (asked, asked_end, first, last, answer, answer_end) in enumerate(spans.tolist()):
        head = [
            vocabulary.cls,
            *tokens[asked:asked_end].tolist()[: objective.question],
            *[vocabulary.sep] * objective.separators,
        ]
        room, at = objective.length - len(head) - 1, first
        while True:
            part = tokens[at : min(at + room, last)].tolist()
            inside = at <= answer and answer_end <= at + len(part) and answer >= 0
            start, end = (
                (len(head) + answer - at, len(head) + answer_end - at - 1) if inside else (0, 0)
            )
            rows.append(([*head, *part, vocabulary.sep], start, end, number, at - first))
            if at + room >= last:
                break
            at += room - objective.stride
    return rows


@pytest.mark.parametrize(
    "settings",
    [
        dict(length=24, stride=4, question=8),
        dict(length=20, stride=0, question=5, separators=2),
        dict(length=64, stride=20),
    ],
)
def test_windows_are_those_of_a_slow_walk(question_store, vocabulary, settings):
    objective = AnswerSpan(**({"question": 16} | settings))
    stream, split = (
        Stream(question_store, Data(objective=objective, batch_size=16), seed=1),
        question_store.open_split("train"),
    )
    questions = open_questions(split)
    expected = slow_windows(questions.spans_Q6, np.asarray(split.tokens), objective, vocabulary)
    assert stream.num_rows == len(expected) and stream.tokens_per_row == objective.length
    sizes = np.diff(questions.spans_Q6[:, :2])[:, 0]
    assert stream.table.num_truncated == (sizes > objective.question).sum()
    seen = []
    for step in range(-(-len(expected) // 16) + 1):
        batch, (row_B, _) = stream.build_batch(step), stream.draw_keys(step * 16 + np.arange(16))
        for i, row in enumerate(row_B.tolist()):
            ids, start, end, number, skipped = expected[row]
            assert batch["token_ids"][i].tolist() == ids + [vocabulary.pad] * (
                objective.length - len(ids)
            ) and batch["attention_mask"][i].sum() == len(ids)
            assert [
                batch[key][i]
                for key in ("start_positions", "end_positions", "question_ids", "context_offsets")
            ] == [
                start,
                end,
                number,
                skipped,
            ]
            context = ids.index(vocabulary.sep) + objective.separators
            first = questions.spans_Q6[number, 2] + skipped
            expected_text = np.zeros(objective.length, bool)
            size = len(ids) - context - 1
            begins, ends = (
                of[first : first + size] for of in (questions.begins_T, questions.ends_T)
            )
            expected_text[context : context + size] = begins < ends
            assert (batch["text_tokens"][i] == expected_text).all()
            assert batch["context_starts"][i] == context and batch["label_weights"][i] == 1
            assert batch["token_type_ids"][i].tolist() == [
                int(context <= n < len(ids)) for n in range(objective.length)
            ]
        seen += row_B.tolist()
    assert set(seen) == set(range(len(expected)))
    if objective.length < 30:
        assert len(expected) > 60 and 0 < sum(start == 0 for _, start, *_ in expected) < len(
            expected
        )


def test_the_answer_of_a_row_is_the_text_that_was_given(question_store, questions, vocabulary):
    stream = Stream(
        question_store,
        Data(objective=AnswerSpan(length=64, stride=20, question=16), batch_size=8),
        split="heldout",
    )
    contexts, answers = read_question_texts(question_store.open_split("heldout"))
    assert contexts == [one.context for one in questions["heldout"]]
    assert answers == [[text for text, _ in one.answers] for one in questions["heldout"]]
    batch = stream.build_evaluation_batch(0)
    for tokens, start, end, number in zip(
        *(batch[key] for key in ("token_ids", "start_positions", "end_positions", "question_ids"))
    ):
        right = answers[number]
        assert bool(start) == bool(right) and (
            not right or vocabulary.decode(tokens[start : end + 1]).strip() == right[0].strip()
        )


def test_unreadable_settings_are_refused(question_store, store, vocabulary, wordpiece):
    with pytest.raises(
        ValueError, match="not contexts with questions; `finetune --task squad` makes"
    ):
        Stream(store, Data(objective=AnswerSpan()))
    for settings, message in (
        (
            dict(length=70),
            r"length=70 leaves 3 tokens for the context next to a question of 64, and stride=128 of them",
        ),
        (dict(separators=3), "separators=3"),
        (dict(stride=-1), "stride=-1"),
        (dict(question=0), "question=0"),
    ):
        with pytest.raises(ValueError, match=message):
            Stream(question_store, Data(objective=AnswerSpan(**settings)))
    with pytest.raises(ValueError, match="its documents have no labels"):
        Stream(question_store, Data(objective=Classification()))
    none = questions.Question("", "who", "\u200b\u200b", (), "there:7")
    with pytest.raises(ValueError, match="there:7: the vocabulary has no piece for its context"):
        encode_questions(vocabulary, [none])
    silent = questions.Question("", "who", "the \ufffd walk", (("\ufffd", 4),), "there:8")
    with pytest.raises(ValueError, match="there:8: the vocabulary has no piece for the answer"):
        encode_questions(read_vocabulary(wordpiece), [silent])


def test_damage_is_noticed(tmp_path, vocabulary, questions):
    from data.examples.qa_store import write_questions

    part = {"train": questions["train"][:4]}
    write_questions(
        tmp_path / "store",
        vocabulary,
        part,
        {"train": encode_questions(vocabulary, part["train"])},
        digest="d",
    )
    path = generation_folder(tmp_path / "store") / "train" / "spans.bin"
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(raw)
    for how, message in (("refuse", "spans.bin: crc32c"), ("skip", "has to be complete")):
        with pytest.raises(ValueError, match=message):
            Store.open(tmp_path / "store").verify_or_salvage(how)


@pytest.mark.parametrize("place", ["first", "last"])
def test_inspection_shows_the_answer(question_store, vocabulary, place):
    objective = AnswerSpan(length=24, stride=4, question=8, cls_position=place)
    stream = Stream(question_store, Data(objective=objective, batch_size=8), seed=1)
    answers = read_question_texts(question_store.open_split("train"))[1]
    rows = inspect_batches(stream, batches=1, rows=8)["rows"]
    numbers = stream.build_batch(0)["question_ids"].tolist()
    given = [row["answer"].strip() for row in rows]
    assert "not in this part of the context" in given
    for answer, number in zip(given, numbers):
        assert answer in [text.strip() for text in answers[number]] or answer.startswith("not in")
