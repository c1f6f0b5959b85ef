"""The downstream benchmark: the two starts differ in nothing but the weights, and the page
describes its figures.
"""

import argparse
import dataclasses
import gzip
import json
import pathlib

import numpy as np
import pytest

from benchmarks.cached_results import format_verb, is_done
from benchmarks.papers.downstream import (
    LEARNING_RATES,
    count_examples,
    make_arguments,
    parse_json,
    score_constant,
)
from benchmarks.papers.downstream_peer import check_losses, stack_batches
from benchmarks.papers.downstream_tasks import TASKS, locate_files, rename_columns
from data.config import Data
from data.examples import labelled_examples, labelled_store
from data.objectives import Classification, Regression
from data.vocabulary.load import train_vocabulary
from pretrain.api.finetuning import gather_examples
from pretrain.cli import finetune
from pretrain.finetune.finetune_options import FinetuneOptions
from pretrain.finetune.multitask import split_task_arguments
from pretrain.settings import AdamW
from pretrain.settings.verb_options import read_options
from pretrain.training.optimizers.transforms import is_decayed
from pretrain.training.schedules import make_learning_rate

# Columns of the corpora's files.
PAIR = {"sentence1": "Cats sleep.", "sentence2": "A cat sleeps."}
COLUMNS = {
    "glue_cola": {"source": "x", "label": 1, "note": "", "sentence": "Cats sleep."},
    "glue_rte": {
        "idx": 0,
        "premise": "Cats sleep.",
        "hypothesis": "A cat sleeps.",
        "label": "entailment",
    },
    "glue_sst2": {"sentence": "fine .", "label": 1},
    "cls_sentconv": {"text": "fine .", "label": 1},
    "glue_mrpc": {"id1": "1", "id2": "2", **PAIR, "label": 1},
    "glue_stsb": {**PAIR, "score": 4.5},
    "qa_qamr": {
        "id": "x",
        "context": "Cats sleep here.",
        "question": "Who sleeps?",
        "answer": "Cats",
        "answer_start": 0,
        "validators": ["Cats"],
    },
    "ner_wnut17": None,  # words and tags, separated by a tab
}
OTHER = {"entailment": "not_entailment", 1: 0, 4.5: 0.5}


def write_records(path, record):
    """Write sixty records with these columns; records with a label have one of two."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".conll":
        path.write_text(
            "".join(
                f"{word}\tB-{kind}\n.\tO\n\n"
                for word, kind in [("Oslo", "place"), ("Ada", "person")] * 30
            )
        )
        return
    name = next(name for name in ("score", "label", "answer") if name in record)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt") as file:
        for i in range(60):
            texts = {
                key: f"{value} {i}"
                for key, value in record.items()
                if isinstance(value, str) and key != name
            }
            file.write(
                json.dumps(
                    record
                    | texts
                    | ({name: OTHER.get(record[name], record[name])} if i % 2 else {})
                )
                + "\n"
            )


@pytest.fixture
def args(tmp_path):
    for task in TASKS.values():
        for name in filter(None, (task.train, task.heldout, task.also)):
            write_records(tmp_path / "corpora" / name, COLUMNS[name.split("/")[0]])
    return argparse.Namespace(
        corpora=tmp_path / "corpora", work=tmp_path / "work", encoder=pathlib.Path("runs/encoder")
    )


def parse_options(parser, words):
    """Return the options of the verb's arguments."""
    return read_options(FinetuneOptions, parser.parse_intermixed_args(words))


@pytest.mark.parametrize("name", TASKS)
def test_finetune_reads_what_the_corpora_have(name, args):
    parser = argparse.ArgumentParser()
    finetune.add_arguments(parser)
    files = locate_files(TASKS[name], args.corpora, args.work)
    words = make_arguments(name, TASKS[name], "head", files, args)
    task, examples = gather_examples(*split_task_arguments(parse_options(parser, words[1:])))
    assert words[len(words) - len(TASKS[name].more) :] == [*TASKS[name].more] and words[
        words.index("--epochs") + 1
    ] == str(TASKS[name].epochs)
    names = {"entity_f1": 5, "pearson": 0, "span_f1": 0}.get(task.metrics[0], 2)
    assert words[0] == "finetune" and len(getattr(examples, "names", ())) == names
    assert sum(map(len, examples.parts.values())) == (60 if files["heldout"] is None else 120)
    if files["also"]:
        also = [*words[1:], "--heldout", str(files["also"])]
        assert (
            gather_examples(*split_task_arguments(parse_options(parser, also)))[1].columns
            == examples.columns
        )


def test_the_two_starts_differ_in_start_rate_and_place_alone(args):
    files = {"train": "t", "heldout": "h"}
    head, fresh = (
        make_arguments("RTE", TASKS["RTE"], start, files, args) for start in ("head", "all")
    )
    assert {*fresh} - {*head} <= {
        "--fresh",
        "all",
        f"optimizer.learning_rate={LEARNING_RATES['all']}",
        str(args.work / "RTE-all"),
    }
    assert {*head} - {*fresh} <= {
        f"optimizer.learning_rate={LEARNING_RATES['head']}",
        str(args.work / "RTE-head"),
    }


def test_a_result_of_another_command_is_refused(tmp_path):
    path = tmp_path / "RTE-head.json"
    assert not is_done(path, ["finetune"])
    path.write_text(json.dumps({"command": format_verb(["finetune"])}))
    assert is_done(path, ["finetune"])
    with pytest.raises(ValueError, match="--again"):
        is_done(path, ["finetune", "x=1"])


def test_columns_are_renamed_in_a_copy_and_nothing_else_is(tmp_path):
    source, target = tmp_path / "a.jsonl", tmp_path / "copy" / "a.jsonl"
    source.write_text('{"text": "é", "label": 1}\n\n{"text": "b", "label": 0}\n')
    assert rename_columns(source, {"sentence": "text"}, target) == source and not target.exists()
    assert (
        rename_columns(tmp_path / "a.conll", {}, target) == tmp_path / "a.conll"
    )  # so no columns are read
    assert rename_columns(source, {"text": "sentence"}, target) == target
    assert [json.loads(line) for line in target.read_text().splitlines()] == [
        {"sentence": "é", "label": 1},
        {"sentence": "b", "label": 0},
    ]


def test_one_answer_for_all():
    right = np.array([1, 1, 1, 0], np.float32)
    assert score_constant(("f1", "accuracy", "matthews"), right, np.float32(1)) == {
        "f1": 6 / 7,
        "accuracy": 0.75,
        "matthews": 0.0,
    }
    assert score_constant(("accuracy",), right, np.float32(0)) == {"accuracy": 0.25}


def test_the_baseline_predicts_the_most_frequent_class(tmp_path):
    words = "the cat sat on a mat and then it slept all day long".split()
    texts = [" ".join(words[i % 5 : i % 5 + 1 + i % 7]) for i in range(60)]
    vocabulary = train_vocabulary(texts, 29)
    label = lambda i, one_in: "yes" if i % one_in else "no"  # noqa: E731
    parts = {"train": [labelled_examples.Example((texts[i],), label(i, 4), "") for i in range(40)]}
    parts["heldout"] = [
        labelled_examples.Example((texts[i],), label(i, 5), "") for i in range(40, 60)
    ]
    labelled_store.write_labelled(tmp_path / "store", vocabulary, parts, ("no", "yes"))
    cut = sum(len(ids) > 6 for ids in vocabulary.encode_batch(texts[:40]))
    data = Data(objective=Classification(length=8), store=str(tmp_path / "store"), batch_size=4)
    found = count_examples(data, ("accuracy", "matthews"))
    assert (
        found
        == {"train": 40, "heldout": 20, "cut": cut, "baseline": {"accuracy": 0.8, "matthews": 0.0}}
        and 0 < cut < 40
    )
    labelled_store.write_labelled(
        tmp_path / "store",
        vocabulary,
        {part: [one._replace(label=2.5) for one in parts[part]] for part in parts},
        (),
    )
    assert (
        count_examples(dataclasses.replace(data, objective=Regression(length=8)), ("pearson",))[
            "baseline"
        ]
        == {}
    )


def test_both_sides_decay_the_same_parameters_at_the_same_rate():
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    from benchmarks.papers.downstream_torch import compute_rate_factor, make_parameter_groups

    layer = torch.nn.Module()
    layer.dense, layer.LayerNorm, layer.words = (
        torch.nn.Linear(2, 3),
        torch.nn.LayerNorm(2),
        torch.nn.Embedding(4, 2),
    )
    decayed, undecayed = make_parameter_groups(layer, {"weight_decay": 0.01})
    assert (decayed["weight_decay"], undecayed["weight_decay"]) == (0.01, 0.0)
    assert {id(each) for each in undecayed["params"]} == {
        id(each) for each in (layer.dense.bias, layer.LayerNorm.weight, layer.LayerNorm.bias)
    }
    assert {id(each) for each in decayed["params"]} == {
        id(layer.dense.weight),
        id(layer.words.weight),
    }
    assert [
        is_decayed(name)
        for name in ("a/bias", "norm/scale", "a/kernel", "token_embedding/embedding")
    ] == [
        False,
        False,
        True,
        True,
    ]
    for warmup in (0, 4):
        ours = make_learning_rate(AdamW(learning_rate=3e-4, warmup_steps=warmup), 10)
        assert [
            3e-4 * compute_rate_factor(step, 10, warmup) for step in range(10)
        ] == pytest.approx([float(ours(step)) for step in range(10)], rel=1e-6)


def test_the_object_that_a_verb_printed_is_found_among_its_other_lines():
    assert parse_json('a warning {\n{"accuracy": 0.5}\nsaved\n') == {"accuracy": 0.5}


def test_programs_with_different_initial_losses_are_not_compared():
    check_losses({"cloze": 0.70001, "trainer": 0.7})
    with pytest.raises(RuntimeError, match="do not do the same work"):
        check_losses({"cloze": 0.7002, "trainer": 0.7})
    assert stack_batches([{"tokens": np.ones((2, 3))}] * 4)["tokens"].shape == (4, 2, 3)
