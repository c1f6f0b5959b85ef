"""Multiple-choice questions are read in each format, and each choice is a row, truncated like a
pair of texts.
"""

import dataclasses

import numpy as np
import pytest

from data.config import Data
from data.examples.choice_questions import parse_question, read_questions
from data.examples.labelled_examples import Example
from data.examples.labelled_store import write_labelled
from data.inspection.batch_report import inspect_batches
from data.inspection.rendering import decode_spaced_token
from data.objectives import MultipleChoice
from data.pipeline import Stream
from data.vocabulary.load import train_vocabulary
from pretrain.convert import tokenizer

TEXT = [
    "The fox and the dog. A word and another word, and so on.",
    "Gaps are left out of a text, and the reader fills them.",
    "No.",
]


@pytest.mark.parametrize(
    ("record", "texts"),
    [
        ({"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "ending10": "e", "ending2": "f"},
         ("a", "b c", "b d", "b f", "b e")),
        ({"sent1": "a", "sent2": "", "ending0": "c", "ending1": "d"}, ("a", "c", "d")),
        ({"context": "a", "question": "b?", "choices": ["c", "d"]}, ("a", "b? c", "b? d")),
        ({"context": "a", "choices": ["c", "d"]}, ("a", "c", "d")),
        ({"question": "b?", "context": None, "choices": ["c", "d"]}, ("b?", "c", "d")),
    ],
)  # fmt: skip
def test_forms_of_a_question(record, texts):
    question = parse_question(record, "here")
    assert question.texts == texts and all(
        text.endswith(choice) for text, choice in zip(texts[1:], question.choices)
    )


def test_a_table_is_read(tmp_path):
    (tmp_path / "a.csv").write_text('sent1,sent2,ending0,ending1,label\n"a, b",c,d,e,1\n')
    assert read_questions(str(tmp_path / "a.csv")) == [
        Example(("a, b", "c d", "c e"), "1", f"{tmp_path}/a.csv:2")
    ]


@pytest.fixture(scope="module")
def vocabularies():
    texts = TEXT * 20
    return {
        "bert": train_vocabulary(texts, 72, algorithm="bpe"),
        "roberta": train_vocabulary(texts, 290, layout="roberta", algorithm="byte_bpe"),
    }


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_rows_are_those_of_the_exported_tokenizer(name, vocabularies, tmp_path):
    examples = [Example((first, *TEXT), str(i % 3), "here") for i, first in enumerate(TEXT)]
    store = write_labelled(
        tmp_path / "store", vocabularies[name], {"train": examples}, ("0", "1", "2")
    )
    data = Data(
        objective=MultipleChoice(length=40, choices=3, separators=2 if name == "roberta" else 1),
        batch_size=2,
    )
    stream = Stream(store, data)
    batch = {
        key: np.concatenate([stream.build_evaluation_batch(i)[key] for i in (0, 1)])[:3]
        for key in stream.build_batch(0)
    }
    theirs = tokenizer.build_tokenizer(vocabularies[name], name)
    theirs.enable_truncation(40, strategy="longest_first")
    cut = 0
    for row, first in enumerate(TEXT):
        encodings = theirs.encode_batch([(first, second) for second in TEXT])
        for choice, encoding in enumerate(encodings):
            count = int(batch["attention_mask"][row, choice].sum())
            assert batch["token_ids"][row, choice, :count].tolist() == encoding.ids
            if name == "bert":
                assert batch["token_type_ids"][row, choice, :count].tolist() == encoding.type_ids
        cut += any(encoding.overflowing for encoding in encodings)
    assert batch["labels"].tolist() == [0, 1, 2] and stream.table.num_truncated == cut > 0
    assert stream.build_evaluation_batch(1)["label_weights"].tolist() == [1, 0]


def test_inspection_shows_the_right_choice(vocabularies, tmp_path):
    examples = [Example((first, *TEXT), str(i % 3), "here") for i, first in enumerate(TEXT)]
    store = write_labelled(
        tmp_path / "store", vocabularies["bert"], {"train": examples}, ("0", "1", "2")
    )
    data = Data(objective=MultipleChoice(length=40, choices=3, cls_position="last"), batch_size=4)
    stream = Stream(store, data)
    batch, rows = stream.build_batch(0), inspect_batches(stream, batches=1)["rows"]
    for i, row in enumerate(rows):
        right = batch["labels"][i]
        ids, other = batch["token_ids"][i, right], batch["token_ids"][i, right - 1]
        length = int(batch["attention_mask"][i, right].sum())
        assert row["label"] == f"choice {right}, as shown" and len(row["segments"]) == length
        assert row["tokens"] == [
            decode_spaced_token(stream.vocabulary, one) for one in ids[:length]
        ]
        assert ids.tolist() != other.tolist()
    assert len(rows) == 4
    with pytest.raises(ValueError, match="its questions have 3 choices; data.objective.choices=4"):
        Stream(store, dataclasses.replace(data, objective=MultipleChoice(choices=4)))
