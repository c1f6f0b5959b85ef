"""T5 answers questions as text, scored against all right answers and counted where a row truncates
them; one model learns several tasks.
"""

import dataclasses
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from data.config import Data
from data.examples.qa import Question
from data.examples.text_pairs import UNANSWERABLE, make_question_pairs, write_pairs
from data.objectives import Text2Text
from data.pipeline import Stream
from data.store.reader import Store
from data.vocabulary.load import train_vocabulary
from models.config.bart import BartConfig
from models.config.t5 import T5Config
from pretrain.__main__ import main
from pretrain.cli.glue import score_other_part
from pretrain.evaluation.generated_answers import GeneratedAnswerEvaluator, score_generated_texts
from pretrain.evaluation.qa_spans import score_answers
from pretrain.evaluation.task_metrics import check_run_metrics
from pretrain.finetune.finetune_options import TaskOptions
from pretrain.finetune.seed_summary import find_best_checkpoint
from pretrain.finetune.tasks import TASKS
from pretrain.finetune.text2text_task import convert_choices, convert_to_text
from pretrain.inference.tasks.predict_generated import make_reader
from pretrain.publish.cards.model_card import make_card
from pretrain.settings.overrides import ConfigError
from pretrain.training.fits.label_checks import read_pairs
from pretrain.workdir import metrics_file
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir
from tests.command import split_words
from tests.pretrain.workdirs import start_untrained, write_json_lines

T5 = T5Config(
    vocab=256, width=32, depth=1, decoder_depth=1, num_heads=4, head_width=8, mlp=64, dropout=0.0
)
NAMES, WORDS = (
    "anna ben carla dora emil".split(),
    "the old green river runs near a quiet house and".split(),
)
FAST = [
    "data.batch_size=16",
    "data.threads=1",
    "optimizer.learning_rate=0.03",
    "data.objective.length=24",
]
SPEC = Text2Text(
    columns=("question", "context", "answers"), names=("question", "context"), questions="squad"
)


def make_questions(count, seed):
    """Who sleeps? One of three contexts contains the answer; the second right answer is longer."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        words = list(rng.choice(WORDS, 3 + int(rng.integers(6))))
        answers = []
        if number % 3 == 0:
            at, name = int(rng.integers(len(words))), str(rng.choice(NAMES))
            words[at:at] = [name, "sleeps"]
            start = len(" ".join([*words[:at], ""]))
            answers = [{"text": text, "answer_start": start} for text in (name, f"{name} sleeps")]
        yield {
            "id": f"q{number}",
            "question": "Who sleeps?",
            "context": " ".join(words),
            "answers": answers,
        }


@pytest.fixture(scope="module")
def vocabulary():
    spelt = f"squad2 question: Who sleeps? context: {' '.join(NAMES)} {UNANSWERABLE} sst2 sentence: positive negative choice1 choice2 choice3"
    texts = [f"{spelt} {row['context']}" for row in make_questions(200, 0)]
    return train_vocabulary(texts, 230, layout="t5", algorithm="bpe")


@pytest.fixture(scope="module")
def pretrained(vocabulary, tmp_path_factory):
    """Return a workdir of an untrained T5."""
    workdir = tmp_path_factory.mktemp("pretrained") / "t5"
    return start_untrained(workdir, T5, vocabulary)


@pytest.mark.more
def test_questions_are_answered_in_writing(pretrained, tmp_path, capsys):
    rows = list(make_questions(48, 2))
    files = (
        write_json_lines(tmp_path / "train.jsonl", make_questions(64, 1)),
        write_json_lines(tmp_path / "dev.jsonl", rows),
    )
    command = split_words(
        f"finetune --from {pretrained} --task squad2 --train {files[0]} --heldout {files[1]}"
    )
    assert (
        main(
            [
                *command,
                *split_words(
                    f"--workdir {tmp_path / 'w'} train.steps=20 evaluate.every=20 checkpoint.every=20"
                ),
                *FAST,
            ]
        )
        == 0
    )
    run = Workdir.open(tmp_path / "w").run
    assert run.evaluate.metrics == ("span_f1", "exact_match") and run.checkpoint.best == "span_f1"
    assert run.data.objective.questions == "squad2" and run.data.objective.prefix == "squad2 "
    scored = metrics_file.read_metrics(tmp_path / "w" / "metrics.jsonl")[-1]
    assert (
        main(
            split_words(
                f"predict --workdir {tmp_path / 'w'} --input {files[1]}",
                f"--output {tmp_path / 'told.jsonl'}",
            )
        )
        == 0
    )
    results = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    assert all(
        one["answer"] == ("" if one["written"] == UNANSWERABLE else one["written"])
        for one in results
    )
    texts = [[answer["text"] for answer in row["answers"]] for row in rows]
    exact, f1 = (
        scores.mean() for scores in score_answers([one["answer"] for one in results], texts, True)
    )
    assert scored["heldout_exact_match"] == exact > 0.3 and scored[
        "heldout_span_f1"
    ] == pytest.approx(f1)
    capsys.readouterr()
    assert (
        main(["evaluate", "--workdir", str(tmp_path / "w"), "--labelled", files[1], "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["exact_match"], found["span_f1"]) == (
        scored["heldout_exact_match"],
        scored["heldout_span_f1"],
    )
    card = make_card(open_trained(tmp_path / "w"))
    assert (
        "`squad2 question: Who sleeps? context: The fox sleeps.`" in card
        and f"or `{UNANSWERABLE}`" in card
    )


def test_all_answers_count_and_those_that_are_cut_away_are_reported(vocabulary, tmp_path):
    context = " the old  river runs near anna and dora sleeps"
    first, later = (
        Question("", "Who?", context, ((name, context.find(name)), (f"{name} dear", None)), "")
        for name in ("river", "anna")
    )
    silent = Question("", "Who?", context, (), "")
    pairs = make_question_pairs(SPEC, [first, later, silent])
    assert (
        pairs[1].source == f"question: Who? context: {context.strip()}"
        and pairs[1].target == "anna"
        and pairs[2].target == UNANSWERABLE
    )
    assert [
        pair.source[: pair.end].endswith(name) for pair, name in zip(pairs, ("river", "anna"))
    ] == [True, True]
    room = len(vocabulary.encode(pairs[0].source[: pairs[0].end]))
    written = write_pairs(
        tmp_path / "store", vocabulary, SPEC, {"train": pairs[:2], "heldout": pairs}
    )
    for length, lost in ((room, 2), (room + 1, 1)):  # </s> occupies a position
        table = Stream(
            written, Data(objective=dataclasses.replace(SPEC, length=length)), split="heldout"
        ).table
        assert table.num_truncated == 3 and table.truncation_report.endswith(
            f"; {lost} of them lose the answer"
        )
    squad, squad2 = (
        ("squad", "train", ["The  river!", "dear"], (1 / 2, 5 / 6)),
        ("squad2", "heldout", ["", "dear", UNANSWERABLE], (1 / 3, 5 / 9, 0, 1 / 3, 1, 1)),
    )
    for rules, part, answers, expected in (squad, squad2):
        spec = Text2Text(questions=rules)
        judge = SimpleNamespace(objective=spec, vocabulary=vocabulary)
        found = GeneratedAnswerEvaluator.score_texts(
            judge,
            ("exact_match", "span_f1"),
            answers,
            SimpleNamespace(folder=written.folder / part),
        )
        assert tuple(found.values()) == pytest.approx(expected)
    with pytest.raises(
        ConfigError,
        match="null_threshold is a metric of answer_span; the metrics of generated answers are exact_match, span_f1",
    ):
        check_run_metrics(("null_threshold",), spec, T5)


@pytest.mark.more
def test_one_model_learns_several_tasks(pretrained, tmp_path, capsys):
    rows, texts = list(make_questions(24, 2)), [row["context"] for row in make_questions(80, 3)]
    labelled = [{"sentence": text, "label": int("sleeps" in text)} for text in texts]
    dev, dev2 = (
        write_json_lines(tmp_path / "dev.jsonl", rows),
        write_json_lines(tmp_path / "sst2.jsonl", labelled[64:]),
    )
    command = split_words(f"finetune --from {pretrained} --workdir {tmp_path / 'w'} --limit 48")
    command += [
        "--task",
        "squad2=" + write_json_lines(tmp_path / "a.jsonl", make_questions(32, 1)),
        "--task",
        "sst2=" + write_json_lines(tmp_path / "b.jsonl", labelled[:64]),
    ]
    command += ["--heldout", f"sst2={dev2}", "--heldout", f"squad2={dev}", *FAST]
    assert main([*command, "--epochs", "4"]) == 0
    out = capsys.readouterr().out
    assert "squad2 40.0%, sst2 60.0% of the rows" in out
    assert "best by mean at step" in out and ", sst2/accuracy " in out
    run = Workdir.open(tmp_path / "w").run
    assert run.train.steps == 20 and [each.task for each in run.data.objective.tasks] == [
        "squad2",
        "sst2",
    ]  # 80 rows are 5 batches
    store = Store.open(run.data.store)
    stream = Stream(store, run.data)
    source, *_ = stream.load_rows(np.arange(80))
    assert np.bincount(source).tolist() == pytest.approx([32, 48], abs=1)
    first = [
        stream.split.tokens[stream.split.document_starts[source.documents[0]] :][:2].tolist()
        for source in stream.split.sources
    ]
    assert [store.vocabulary.encode(name) for name in ("squad2", "sst2")] == first
    scored = metrics_file.read_metrics(tmp_path / "w" / "metrics.jsonl")[-1]
    own = [
        np.mean([scored["heldout_squad2/span_f1"], scored["heldout_squad2/exact_match"]]),
        scored["heldout_sst2/accuracy"],
    ]
    assert (
        scored["heldout_mean"] == pytest.approx(np.mean(own))
        and scored["heldout_sst2/no_label"] + scored["heldout_sst2/accuracy"] * 16 <= 16
    )
    assert min(own) > 0.3
    assert (
        main(["evaluate", "--workdir", str(tmp_path / "w"), "--labelled", f"sst2={dev2}", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert {name: value for name, value in found.items() if "/" in name} == {
        name: scored[f"heldout_{name}"] for name in found if "sst2/" in name
    }
    assert found["mean"] == found["sst2/accuracy"]
    held_out_and_submitted(tmp_path / "w", dev2, labelled[64:], capsys)
    some = [
        {"task": "sst2"} | labelled[0],
        {"task": "squad2"} | rows[1],
        {"text": f"sst2 sentence: {texts[0]}"},
    ]
    assert (
        main(
            [
                *split_words(f"predict --workdir {tmp_path / 'w'} --input"),
                write_json_lines(tmp_path / "some.jsonl", some),
                "--json",
            ]
        )
        == 0
    )
    a, b, c = map(json.loads, capsys.readouterr().out.splitlines())
    assert (
        a["label"] == {"positive": "1", "negative": "0"}.get(a["written"])
        and "answer" in b
        and c["written"] == a["written"]
        and "label" not in c
    )
    assert (
        "sst2 sentence" in make_card(open_trained(tmp_path / "w"))
        and run == Workdir.open(tmp_path / "w").run
    )


def held_out_and_submitted(workdir, file, rows, capsys):
    """GLUE's table shows the GLUE tasks of a multi-task run, and a submission has the labels of
    `predict`; other examples are scored by task name.
    """
    step, scores = find_best_checkpoint(workdir, "mean")
    glue_scores = {"SST-2": {"accuracy": 100 * scores["sst2/accuracy"]}}
    assert (
        main(
            split_words(
                f"glue {workdir} --test SST-2={file} --output {workdir.parent / 'out'} --json"
            )
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out.splitlines()[0])["tasks"] == glue_scores
    assert score_other_part(workdir, step, file, "sst2") == scores["sst2/accuracy"]
    asked = write_json_lines(
        workdir.parent / "asked.jsonl", [{"task": "sst2"} | row for row in rows]
    )
    assert (
        main(
            ["predict", "--workdir", str(workdir), "--step", str(step), "--input", asked, "--json"]
        )
        == 0
    )
    labels = [json.loads(line)["label"] or "0" for line in capsys.readouterr().out.splitlines()]
    written = "".join(f"{i}\t{label}\n" for i, label in enumerate(labels))
    assert (
        len(set(labels)) == 2
        and (workdir.parent / "out" / "SST-2.tsv").read_text() == f"index\tprediction\n{written}"
    )
    assert (
        main(["glue", str(workdir), "--mismatched", file]) == 2
        and "no run of mnli" in capsys.readouterr().err
    )


def test_rows_are_as_long_as_the_model_can_read(vocabulary, tmp_path):
    file = write_json_lines(tmp_path / "a.jsonl", make_questions(8, 1))
    found = convert_to_text(
        "squad2",
        TASKS["squad2"].read_examples(TaskOptions("squad"), file, file, 0.5),
        SimpleNamespace(vocabulary=vocabulary),
    )
    assert (
        found.make_objective(T5).length == 512
        and found.make_objective(BartConfig(vocab=256, length=200)).length == 200
    )


def test_a_choice_is_written_by_its_number(vocabulary, tmp_path):
    rows = [
        {"question": "anna", "choices": ["the river", "the house"], "label": i % 2}
        for i in range(4)
    ]
    file = write_json_lines(tmp_path / "a.jsonl", rows)
    found = convert_choices(
        "multiple_choice",
        TASKS["multiple_choice"].read_examples(TaskOptions("squad"), file, file, 0.5),
        vocabulary,
    )
    assert found.parts["heldout"][1] == (
        "multiple_choice choice1: the river choice2: the house context: anna",
        "choice2",
    )
    assert read_pairs(found.spec, file) == found.parts["heldout"] and found.metrics == ("accuracy",)
    spec = Text2Text(task="x", columns=("a", "b"))
    read = make_reader(
        SimpleNamespace(
            run=SimpleNamespace(
                data=SimpleNamespace(
                    objective=Text2Text(tasks=(spec, replace(found.spec, task="c")))
                )
            )
        )
    )
    assert read(rows[0] | {"task": "c"}, None) == ("c", "anna", "the river", "the house") and read(
        {"task": "x", "a": "dog"}, None
    ) == ("x", "dog")
    for record, message in (
        (
            {"choices": ["a", "b", "c"]},
            "f:1: 3 choices; this model was fine-tuned on questions with 2",
        ),
        ({"task": "d"}, "f:1: column 'task' is 'd'"),
    ):
        with pytest.raises(ValueError, match=message):
            read(rows[0] | {"task": "c"} | record, "f:1")
    assert score_generated_texts(
        found.spec, vocabulary, ("accuracy",), ["choice2", "river"], ["choice2", "choice1"]
    ) == {"accuracy": 0.5, "no_label": 1}


def test_wrong_arguments_of_several_tasks_are_refused(pretrained, tmp_path, capsys):
    file = write_json_lines(
        tmp_path / "a.jsonl", [{"sentence": "the river", "label": i % 2} for i in range(8)]
    )
    command = ["finetune", "--from", str(pretrained), "--workdir", str(tmp_path / "w")]
    for words, message in (
        (["--task", f"sst2={file}", "--task", f"sst2={file}"],
         "--task sst2 is given twice; tasks differ by their prefix"),
        (["--task", f"sst2={file}", "--train", file], "and --task sst2="),
        (["--task", f"sst2={file}", "--task", f"cola={file}", "--heldout", file],
         "several tasks need NAME=VALUE, where NAME is one of sst2, cola"),
        (["--task", f"sst2={file}", "--limit", "3"], "--limit needs several tasks"),
    ):  # fmt: skip
        assert main([*command, *words]) == 2 and message in capsys.readouterr().err
    with pytest.raises(
        ConfigError,
        match="bleu is a metric of text2text and seq2seq; the metrics of several tasks are mean",
    ):
        check_run_metrics(("bleu",), Text2Text(tasks=(Text2Text(task="a"),)), T5)
    with pytest.raises(
        ConfigError,
        match="bleu is a metric of text2text and seq2seq; the metrics of generated answers are",
    ):
        check_run_metrics(
            ("mean",),
            Text2Text(tasks=(Text2Text(task="a", questions="squad", metrics=("bleu",)),)),
            T5,
        )
