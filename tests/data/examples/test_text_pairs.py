"""Labelled texts become the paper's inputs and targets; their rows are the store's pairs with
prefix and end token, truncated at the end.
"""

import json

import numpy as np
import pytest

from data.config import Data
from data.examples.labelled_examples import Example
from data.examples.text_pairs import (
    QuestionPair,
    find_step,
    format_score,
    format_source,
    format_target,
    make_pairs,
    write_pairs,
)
from data.inspection.batch_report import inspect_batches
from data.objectives import Text2Text
from data.pipeline import Stream
from data.store.reader import Store
from tests.store_files import generation_folder

PAIR = dict(columns=("a", "b", "label"), labels=("0", "1"), words=("not_equivalent", "equivalent"))


def test_the_paper_s_inputs_and_answers():
    """Raffel et al. 2019, appendix D: the hypothesis precedes the premise, scores are multiples of
    0.2.
    """
    mrpc = Text2Text(prefix="mrpc ", names=("sentence1", "sentence2"), **PAIR)
    assert (
        format_source(mrpc, ("We act.", "Act!")) == "mrpc sentence1: We act. sentence2: Act!"
        and format_target(mrpc, "1") == "equivalent"
    )
    mnli = Text2Text(prefix="mnli ", names=("premise", "hypothesis"), **PAIR)
    assert (
        format_source(mnli, ("It rains.", "It is dry."))
        == "mnli hypothesis: It is dry. premise: It rains."
    )
    german = Text2Text(prefix="translate English to German: ")
    assert (
        format_source(german, ("That is good.",)) == "translate English to German: That is good."
        and format_target(german, "Das ist gut.") == "Das ist gut."
    )
    scored = Text2Text(
        prefix="stsb ", names=("sentence1", "sentence2"), columns=("a", "b", "score"), step=0.2
    )
    assert [format_target(scored, score) for score in (0.0, 2.57, 3.25, 5.0)] == [
        "0.0",
        "2.6",
        "3.2",
        "5.0",
    ]
    with pytest.raises(ValueError, match="here:1: the label '2' is not one of '0', '1'"):
        make_pairs(mrpc, [Example(("a", "b"), "2", "here:1")])


def test_scores_have_as_many_decimals_as_their_step_needs():
    assert [find_step([0.0, high]) for high in (1.0, 5.0, 10.0, 100.0)] == [
        0.05,
        0.2,
        0.5,
        5.0,
    ] and find_step([2.0, 2.0]) == 1.0
    assert find_step([0.0, 1e-12]) == 5e-14
    assert format_score(0.33e-12, 5e-14) == "0.00000000000035"
    assert [
        format_score(*pair) for pair in ((0.333, 0.05), (37.0, 5.0), (-0.04, 0.2), (-1.1, 0.5))
    ] == [
        "0.35",
        "35",
        "0.0",
        "-1.0",
    ]
    for step in (0.05, 0.2, 5.0):
        assert len({format_score(score, step) for score in np.linspace(0, 25 * step, 999)}) == 26


def test_half_of_a_character_is_an_escape_in_the_store(t5_vocabulary, tmp_path):
    """UTF-8 has none, and an answer of a question may have one."""
    spec = Text2Text(length=20, target_length=12)
    pair = QuestionPair("question: a context: b", "b", ("b", "\ud83d"), 3)
    splits = {"train": [pair], "heldout": [pair]}
    store = write_pairs(tmp_path / "store", t5_vocabulary, spec, splits, digest="x")
    (line,) = (store.open_split("heldout").folder / "answers.jsonl").read_text().splitlines()
    assert json.loads(line) == ["b", "\ud83d"]


@pytest.mark.parametrize("framed", [False, True], ids=["t5", "bart"])
def test_rows_are_the_pairs_of_the_store(framed, t5_vocabulary, bytes_store, texts, tmp_path):
    vocabulary = bytes_store.vocabulary if framed else t5_vocabulary
    answered = [(texts[i], texts[i + 50][: 1 + 3 * i]) for i in range(30)]
    spec = Text2Text(length=20, target_length=12, start_of_text=framed)
    store = write_pairs(
        tmp_path / "store",
        vocabulary,
        spec,
        {"train": answered[:20], "heldout": answered[20:]},
        digest="x",
    )
    assert [
        json.loads(line)
        for line in (store.open_split("heldout").folder / "answers.jsonl").read_text().splitlines()
    ] == [target for _, target in answered[20:]]
    stream = Stream(store, Data(objective=spec, batch_size=20))
    batch, cut = stream.build_evaluation_batch(0), 0
    for row, pair in enumerate(answered[:20]):
        ids = vocabulary.encode_batch(pair)
        room = [20 - 1 - framed, 12 - 1 - framed]
        cut += any(len(one) > most for one, most in zip(ids, room))
        for (key, used), one, most in zip(
            (("encoder_token_ids", "encoder_attention_mask"), ("labels", "label_weights")),
            ids,
            room,
        ):
            expected = [*[vocabulary.bos] * framed, *one[:most], vocabulary.eos]
            assert batch[key][row].tolist() == expected + [vocabulary.pad] * (
                len(batch[key][row]) - len(expected)
            )
            assert batch[used][row].tolist() == [
                i < len(expected) for i in range(len(batch[key][row]))
            ]
    assert stream.table.num_truncated == cut > 0
    report = inspect_batches(stream, batches=2, rows=2)
    assert report["passed"] and len(report["rows"]) == 2


def test_settings_without_rows_are_refused(t5_vocabulary, pair_store, texts, tmp_path):
    for settings, message in (
        (dict(length=1), "length=1, target_length=128; each must hold a token"),
        (dict(columns=("a", "b", "c")), "there is a name for each column but the last"),
        (dict(labels=("x", "y"), words=("x",)), "a word for each label"),
        (
            dict(labels=("x", "y"), words=("x", "y"), step=0.2),
            "set at most one of them",
        ),
        (dict(step=-1.0), "step=-1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            Text2Text(**settings).check_vocabulary(t5_vocabulary)
    with pytest.raises(ValueError, match="no answers; `finetune` makes a store of pairs"):
        Stream(pair_store, Data(objective=Text2Text()))
    write_pairs(tmp_path / "s", t5_vocabulary, Text2Text(), {"train": [(texts[0], texts[1])]})
    path = generation_folder(tmp_path / "s") / "train" / "answers.jsonl"
    path.write_text(path.read_text().upper())
    with pytest.raises(ValueError, match="answers.jsonl: crc32c"):
        Store.open(tmp_path / "s").verify_or_salvage("refuse")
    with pytest.raises(ValueError, match="has to be complete"):
        Store.open(tmp_path / "s").verify_or_salvage("skip")
