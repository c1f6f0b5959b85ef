"""From a pretrained workdir and a labelled file to a classifier, on the command line; and every
error in a file.
"""

import json
import pathlib
import re
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from data.config import Data
from data.examples.labelled_examples import Example
from data.examples.labelled_store import write_labelled
from data.examples.qa import Question
from data.examples.tagged_sentences import Sentence
from data.objectives import CausalLm, Text2Text
from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from models.config.sparse_transformer import SparseTransformerConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer
from pretrain.config import Run
from pretrain.finetune.labelled_task import LabelledExamples
from pretrain.finetune.multiple_choice_task import ChoiceExamples
from pretrain.finetune.qa_task import QuestionExamples, SpanTask
from pretrain.finetune.seed_summary import describe_unfinished, find_best_checkpoint
from pretrain.finetune.tagging_task import TaggedExamples
from pretrain.finetune.text2text_task import TextExamples
from pretrain.settings.overrides import ConfigError
from pretrain.training.memory import memory_check
from pretrain.training.memory.device_memory import DeviceMemory
from pretrain.training.new_workdir import check_origin, digest_params, start_workdir
from pretrain.workdir import metrics_file
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir
from tests.command import split_words
from tests.pretrain.workdirs import start_untrained, write_json_lines

BERT = BertConfig(
    vocab=64, length=32, width=32, depth=2, num_heads=4, mlp=64, dropout=0.0, attention_dropout=0.0
)
WORDS = "the a fox dog river stone runs sees near old".split()
FAST = [
    "data.batch_size=32",
    "optimizer.learning_rate=3e-3",
    "data.objective.length=10",
    "data.threads=1",
]


def make_sentences(count, seed=0):
    """Return a sentence of two to four words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 2 + int(rng.integers(3)))) for _ in range(count)]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Return a workdir of an untrained BERT."""
    vocabulary = train_vocabulary(make_sentences(300), 56, algorithm="bpe")
    return start_untrained(tmp_path_factory.mktemp("pretrained") / "bert", BERT, vocabulary)


@pytest.fixture(scope="module")
def tuned(pretrained, tmp_path_factory):
    """Return (workdir, command, held-out file): does a pair of texts mention a fox, in MNLI's
    format.
    """
    folder = tmp_path_factory.mktemp("tuned")
    pairs = list(zip(make_sentences(320, 1), make_sentences(320, 2)))
    rows = [
        {"s": a, "t": b, "is": "entailment" if "fox" in f"{a} {b}".split() else "neutral"}
        for a, b in pairs
    ]
    files = (
        write_json_lines(folder / "train.jsonl", rows[:256]),
        write_json_lines(folder / "dev.jsonl", rows[256:]),
    )
    command = split_words(
        f"finetune --from {pretrained} --task mnli --train {files[0]} --heldout {files[1]}"
    )
    command += [
        *split_words(f"--columns s,t,is --workdir {folder / 'w'} --epochs 5"),
        *FAST,
        "checkpoint.keep=50",
    ]
    assert main(command) == 0
    return folder / "w", command, files[1]


def test_the_encoder_begins_as_it_was_pretrained(tuned, pretrained):
    workdir, *_ = tuned
    first, before = open_trained(workdir, 0), open_trained(pretrained)
    expected = {"bert": before.params["bert"]}
    jax.tree.map(np.testing.assert_array_equal, first.params["encoder"], expected)
    assert first.read_origin() == {
        "fresh_flag": "head",
        "pretrained_digest": digest_params(before.params),
        "folder": "bert",
        "pretrained_step": 0,
        "task": "mnli",
        "fresh": ["classifier/out/bias", "classifier/out/kernel"],
    }
    run = Workdir.open(workdir).run
    assert run.data.objective.columns == ("s", "t", "is")
    assert (
        run.model.labels == ("entailment", "neutral")
        and run.train.steps == 40
        and run.optimizer.warmup_steps == 4
    )
    assert run.evaluate.every == run.checkpoint.every == 8 and run.checkpoint.best == "accuracy"
    assert first.vocabulary == before.vocabulary


def test_it_learns_and_every_row_of_the_held_out_part_is_scored(tuned, capsys):
    workdir, command, dev = tuned
    scored = [
        row["heldout_accuracy"]
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
        if "heldout_accuracy" in row
    ]
    assert len(scored) == 5 and max(scored) > 0.9
    assert main(["evaluate", "--workdir", str(workdir), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["rows"] == 64 and scores["accuracy"] == scored[-1] == pytest.approx(
        scores["classification_accuracy"]
    )
    assert "perplexity" not in scores
    few = workdir.parent / "few.jsonl"
    few.write_text("".join(pathlib.Path(dev).read_text().splitlines(keepends=True)[:20]))
    assert main(["evaluate", "--workdir", str(workdir), "--labelled", str(few), "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["rows"] == 20 and other["store"] == str(few)
    output = workdir.parent / "told.jsonl"
    assert (
        main(["predict", "--workdir", str(workdir), "--input", dev, "--output", str(output)]) == 0
    )
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert np.mean([result["label"] == result["is"] for result in results]) == scores["accuracy"]
    assert (
        np.mean([result["label"] == result["is"] for result in results[:20]]) == other["accuracy"]
    )
    for result in results:
        assert (
            result["probability"]
            == result["probabilities"][result["label"]]
            == max(result["probabilities"].values())
        )
        assert sum(result["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert any(result.get("cut") for result in results) and not all(
        result.get("cut") for result in results
    )
    capsys.readouterr()
    assert main(command) == 0
    out = capsys.readouterr().out
    best = 8 + 8 * max(range(5), key=lambda i: (scored[i], i))
    assert (
        "has already been reached" in out
        and f"best by accuracy at step {best}, held out: accuracy {max(scored):.4f}" in out
    )


def test_predict_refuses_input_that_the_model_does_not_read(tuned, tmp_path, capsys):
    workdir, *_ = tuned
    predict = ["predict", "--workdir", str(workdir)]
    assert (
        main(
            [
                *predict,
                "--input",
                write_json_lines(
                    tmp_path / "a.jsonl", [{"text": "a fox", "text2": "dog", "label": 3}]
                ),
                "--json",
            ]
        )
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["given_label"] == 3 and result["label"] in ("entailment", "neutral")
    assert (
        main(
            [
                *predict,
                "--input",
                write_json_lines(tmp_path / "b.jsonl", [{"s": "a", "t": "b"}, {"s": "a"}]),
            ]
        )
        == 2
    )
    assert "b.jsonl:2: expected s and t, each a text; this has 's'" in capsys.readouterr().err
    assert (
        main([*predict, "--input", write_json_lines(tmp_path / "c.jsonl", [{"s": "", "t": " "}])])
        == 2
    )
    assert "c.jsonl:1 is empty" in capsys.readouterr().err
    (tmp_path / "d.txt").write_text("a fox\tthe dog\n")
    assert main([*predict, "--input", str(tmp_path / "d.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in ("entailment", "neutral")
    (tmp_path / "e.csv").write_text('s,t,label\na fox,"the, dog",3\n')
    assert main([*predict, "--input", str(tmp_path / "e.csv"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["label"] in ("entailment", "neutral") and (
        result["t"],
        result["given_label"],
    ) == ("the, dog", "3")
    assert (
        main([*predict, "--input", write_json_lines(tmp_path / "f.jsonl", [{"text": 3}])]) == 2
        and "f.jsonl:1: expected s and t" in capsys.readouterr().err
    )
    assert (
        main([*predict, "a fox"]) == 2
        and "the command line: expected s and t" in capsys.readouterr().err
    )
    assert (
        main([*predict, "--top", "3", "--input", str(tmp_path / "a.jsonl")]) == 2
        and "are for other models" in capsys.readouterr().err
    )
    assert (
        main([*predict, "--n-best", "3", "--input", str(tmp_path / "a.jsonl")]) == 2
        and "--n-best is for answers" in capsys.readouterr().err
    )
    assert (
        main([*predict, "--n-best", "0", "--input", str(tmp_path / "a.jsonl")]) == 2
        and "--n-best 0: must be at least 1" in capsys.readouterr().err
    )


def test_other_examples_must_be_of_the_same_labels(tuned, pretrained, tmp_path, capsys):
    workdir, *_ = tuned
    evaluate = [
        *split_words(f"evaluate --workdir {workdir} --labelled"),
        write_json_lines(tmp_path / "a.jsonl", [{"s": "a", "t": "b", "is": "dog"}]),
    ]
    assert (
        main(evaluate) == 2
        and "a.jsonl:1: the label 'dog' is not one of 'entailment', 'neutral'"
        in capsys.readouterr().err
    )
    assert (
        main([*evaluate, "--store", "x"]) == 2
        and "cannot be combined with --store or --split" in capsys.readouterr().err
    )
    evaluate[2] = str(pretrained)
    assert main(evaluate) == 2 and "is not a run of `finetune`" in capsys.readouterr().err


def test_its_place_in_the_table_of_glue_and_what_is_submitted(tuned, tmp_path, capsys):
    """The second held-out part, with some wrong labels, is scored as `predict` labels it, and so is
    the file of a submission, by the best step.
    """
    workdir, _, dev = tuned
    step, scores = find_best_checkpoint(workdir, "accuracy")
    rows = [json.loads(line) for line in pathlib.Path(dev).read_text().splitlines()][:20]
    rows = [
        row | {"is": "neutral"} if row["is"] == "entailment" and i < 10 else row
        for i, row in enumerate(rows)
    ]
    other, test = write_json_lines(tmp_path / "other.jsonl", rows), tmp_path / "test.tsv"
    test.write_text(
        "index\tsentence1\tsentence2\n"
        + "".join(f"{7 + i}\t{row['s']}\t{row['t']}\n" for i, row in enumerate(rows))
    )
    assert (
        main(
            ["predict", "--workdir", str(workdir), "--step", str(step), "--input", other, "--json"]
        )
        == 0
    )
    predicted_labels = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
    words = split_words(
        f"--mismatched {other} --test MNLI-mm={test} --output {tmp_path / 'out'} --json"
    )
    assert main(["glue", str(workdir), *words]) == 0
    table = json.loads(capsys.readouterr().out.splitlines()[0])["tasks"]
    right = np.mean([label == row["is"] for label, row in zip(predicted_labels, rows)])
    assert right < scores["accuracy"] and table == {
        "MNLI-m": {"accuracy": 100 * scores["accuracy"]},
        "MNLI-mm": {"accuracy": pytest.approx(100 * right)},
    }
    written = "".join(f"{7 + i}\t{label}\n" for i, label in enumerate(predicted_labels))
    assert (
        len(set(predicted_labels)) == 2
        and (tmp_path / "out" / "MNLI-mm.tsv").read_text() == f"index\tprediction\n{written}"
    )


def replace_word(command, old, new):
    return [str(new) if word == str(old) else word for word in command]


def test_a_workdir_keeps_its_examples(tuned, pretrained, tmp_path, capsys):
    workdir, command, dev = tuned
    fewer = tmp_path.parent / "fewer.jsonl"
    fewer.write_text("".join(pathlib.Path(dev).read_text().splitlines(keepends=True)[:-1]))
    other = [str(fewer) if word.endswith("train.jsonl") else word for word in command]
    assert main(other) == 2 and "holds other examples" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    assert (
        main([*command, f"data.store={tmp_path / 'mine'}"]) == 2
        and "is not a token store" in capsys.readouterr().err
    )
    assert (tmp_path / "mine" / "file").exists()
    (tmp_path / "several" / "seed-1").mkdir(parents=True)
    (tmp_path / "several" / "seed-1" / "file").touch()
    for folder, more in (
        ("mine", []),
        ("several", ["--seeds", "2"]),
    ):  # before anything starts, for any seed
        assert main([*replace_word(command, workdir, tmp_path / folder), *more]) == 2
        assert (
            "is not a run's folder (it has no config.json) and holds file"
            in capsys.readouterr().err
        )
    assert (
        sorted(path.name for path in tmp_path.rglob("*")) == "file file mine seed-1 several".split()
    )
    vocabulary = train_vocabulary(make_sentences(300, 9), 50, algorithm="bpe")
    start_untrained(tmp_path / "later", BERT, vocabulary, open_trained(pretrained).params)
    assert main(replace_word(command, pretrained, tmp_path / "later")) == 2
    assert "holds other examples or has another vocabulary" in capsys.readouterr().err
    # A store with other labels than the model's is refused before anything is computed.
    one = {"heldout": [Example(("a fox", "the dog"), "neutral", "here")]}
    write_labelled(
        tmp_path / "store", open_trained(workdir).vocabulary, one, ("neutral", "entailment")
    )
    assert main(["evaluate", "--workdir", str(workdir), "--store", str(tmp_path / "store")]) == 2
    assert (
        "has the labels 'neutral', 'entailment', the model 'entailment', 'neutral'"
        in capsys.readouterr().err
    )


def test_a_workdir_keeps_its_origin(tuned, pretrained, tmp_path, capsys):
    """The contents of the model decide, not its name; a flag that would be ignored is refused."""
    workdir, command, _ = tuned
    before = (workdir / "metrics.jsonl").read_text()
    other = tmp_path / pretrained.name
    trained = open_trained(pretrained)
    params = jax.tree.map(lambda leaf: leaf + 1, trained.params)
    start_workdir(other, trained.run, params, trained.vocabulary)
    for changed, message in (
        (
            replace_word(command, str(pretrained), str(other)),
            f"began with bert at step 0, not with the model in {other} at step 0",
        ),
        ([*command, "--fresh", "all"], "began with --fresh head, not --fresh all, which would be"),
    ):
        assert main(changed) == 2
        error = capsys.readouterr().err
        assert message in error and f"`train {workdir}/config.json --workdir {workdir}`" in error
    assert (workdir / "metrics.jsonl").read_text() == before
    moved = shutil.copytree(pretrained, tmp_path / "of another name")
    assert main(replace_word(command, str(pretrained), str(moved))) == 0


def test_an_origin_of_an_earlier_version_is_read_by_its_name(tuned, pretrained, tmp_path, capsys):
    """It has neither digest nor flag."""
    workdir = tmp_path / "w"
    workdir.mkdir()
    origin = json.loads((tuned[0] / "origin.json").read_text())
    del origin["fresh_flag"], origin["pretrained_digest"]
    (workdir / "origin.json").write_text(json.dumps(origin))
    trained = open_trained(pretrained)
    check_origin(Workdir.open(workdir), trained, "head")
    assert "whether" in (error := capsys.readouterr().err) and "cannot be checked" in error
    (workdir / "origin.json").write_text(json.dumps(origin | {"pretrained_step": 7}))
    with pytest.raises(ConfigError, match="w began with bert at step 7, not with the model in"):
        check_origin(Workdir.open(workdir), trained, "head")


def test_seeds_of_two_pretrained_steps_are_not_mixed(tmp_path, capsys):
    workdir = tmp_path / "seeds" / "seed-1"
    workdir.mkdir(parents=True)
    origin = {"folder": "bert", "pretrained_step": 4, "fresh_flag": "head"}
    (workdir / "origin.json").write_text(json.dumps(origin | {"pretrained_digest": "a" * 32}))
    model = SimpleNamespace(workdir="runs/bert", step=8, params={})
    with pytest.raises(ConfigError, match="seed-1 began with bert at step 4.*give the --from and"):
        check_origin(Workdir.open(workdir), model, "head")


def test_the_held_out_examples_are_not_those_of_training(tuned, tmp_path, capsys):
    _, command, dev = tuned
    train = command[command.index("--train") + 1]
    shutil.copy(train, tmp_path / "same.jsonl")
    for heldout in (train, str(tmp_path / "same.jsonl")):
        assert main(replace_word(command, dev, heldout)) == 2
        assert f"--heldout {heldout} is --train {train}: a model" in capsys.readouterr().err


def test_a_run_that_ended_before_its_last_step_is_unfinished(tuned, tmp_path):
    workdir, *_ = tuned
    assert not describe_unfinished(str(workdir))
    copy = shutil.copytree(workdir, tmp_path / "w")
    shutil.rmtree(copy / "checkpoints" / "40")
    assert f"{copy} ended at step 32 of 40, so its scores" in describe_unfinished(str(copy))


def test_a_digest_is_of_all_that_is_learned():
    """The card describes texts, labels and their names; tags and their scheme; choices; answers and
    whether there may be none; generated text.
    """
    one, none = Example(("a fox",), "x", "here"), ()
    sentence, question = (
        Sentence(("a", "fox"), ("O", "B-x"), "here", 1, 1),
        Question("q", "Who?", "a fox", (("fox", 2),), "here"),
    )
    kinds = [
        (lambda parts, names: LabelledExamples(None, parts, names, None), one,
         [one._replace(texts=("a",)), one._replace(label="y")], ("x", "y"), ("y", "x")),
        (lambda parts, count: ChoiceExamples(parts, count), one,
         [one._replace(texts=("a",)), one._replace(label="y")], 2, 3),
        (
            lambda parts, names: TaggedExamples(parts, *names, none),
            sentence,
            [sentence._replace(words=("a", "dog")), sentence._replace(tags=("O", "O"))],
            ("xy", "bio"),
            ("yx", "bio"),
        ),
        (lambda parts, names: TaggedExamples(parts, *names, none), sentence, [], ("xy", "bio"),
         ("xy", "iob1")),
        (lambda parts, silent: QuestionExamples(SpanTask(silent, ()), parts), question,
         [question._replace(**{key: "z"}) for key in Question._fields[:4]], True, False),
        (lambda parts, prefix: TextExamples(Text2Text(prefix=prefix), parts, none), ("a", "b"),
         [("b", "b"), ("a", "a")], "x ", "y "),
    ]  # fmt: skip
    for make, example, others, how, other in kinds:
        made = make({"train": [example]}, how)
        assert made.digest_examples() == make({"train": [example]}, how).digest_examples()
        different = [make({"train": [each]}, how) for each in others] + [
            make({"train": [example]}, other),
            make({"heldout": [example]}, how),
        ]
        assert len({each.digest_examples() for each in (made, *different)}) == 1 + len(different)
    moved = (
        LabelledExamples(None, {"train": [one._replace(location="there")]}, none, None),
        LabelledExamples(None, {"train": [one]}, none, None),
    )
    assert moved[0].digest_examples() == moved[1].digest_examples()


@pytest.mark.more
def test_scores_of_several_seeds(pretrained, tmp_path, capsys):
    """The label is the number of foxes in a text; part of the examples is held out."""
    rows = [
        {"text": text, "label": float(text.split().count("fox"))}
        for text in (
            *make_sentences(100, 3),
            *map(" ".join, zip(*[iter(make_sentences(200, 6))] * 4)),
        )
    ]
    command = [
        *split_words(f"finetune --from {pretrained} --task regression --train"),
        write_json_lines(tmp_path / "t.jsonl", rows),
    ]
    command += [
        *split_words(f"--workdir {tmp_path / 'w'} --epochs 2 --seeds 2 --fresh all"),
        *FAST,
        "train.seed=4",
    ]
    assert main(command) == 0
    captured, vocabulary = capsys.readouterr(), open_trained(pretrained).vocabulary
    long = [len(vocabulary.encode(row["text"])) > 8 for row in rows]
    cut = [
        int(number)
        for number in re.findall(
            r"truncated: (\d+) examples that are longer than a row of 10", captured.err
        )
    ]
    assert (
        cut[:2] == cut[2:]
        and sum(cut[:2]) == sum(long)
        and 0 < cut[1] < cut[0]
        and captured.err.count("\nheld out: truncated: ") == 2
    )
    score_record = json.loads((tmp_path / "w" / "scores.json").read_text())
    runs = [score_record["runs"][str(tmp_path / "w" / f"seed-{seed}")] for seed in (4, 5)]
    values = [run["pearson"] for run in runs]
    assert score_record["metric"] == "pearson" and score_record["mean"]["pearson"] == pytest.approx(
        np.mean(values)
    )
    assert (
        score_record["spread"]["pearson"] == pytest.approx(np.std(values, ddof=1))
        and values[0] != values[1]
    )
    assert "2 seeds: pearson" in captured.out
    first = open_trained(tmp_path / "w" / "seed-4", runs[0]["step"])
    assert first.run.train.seed == 4 and len(first.read_origin()["fresh"]) > 10
    assert (
        main(["predict", "--workdir", str(tmp_path / "w" / "seed-5"), "a fox and a fox", "--json"])
        == 0
    )
    assert isinstance(json.loads(capsys.readouterr().out)["score"], float)
    assert main(command) == 0 and capsys.readouterr().out.count("has already been reached") == 2


GOOD = [{"text": "a fox", "label": "x"}, {"text": "a dog", "label": "y"}] * 4


@pytest.mark.held_by(6)
@pytest.mark.parametrize(
    ("train", "heldout", "words", "message"),
    [
        (GOOD, [{"text": "a", "label": "z"}], [], "dev.jsonl:1: the label 'z' is not one of 'x', 'y'"),
        (GOOD[:1], GOOD, [], "train.jsonl: all 1 examples have the label 'x'"),
        (GOOD[:1], GOOD, ["--labels", "x,y"], "train.jsonl: all 1 examples have the label 'x'"),
        ([{"text": "a", "label": 2}] * 3, GOOD, ["--task", "regression"],
         "train.jsonl: all 3 examples have the label 2.0; nothing can be learned"),
        (GOOD, GOOD[:1], ["evaluate.metrics=pearson"],
         "held out: all 1 examples have the label 'x', so its scores are not informative"),
        ([], GOOD, [], "train.jsonl: contains no examples"),
        (GOOD, [], [], "dev.jsonl: no examples in it"),
        ([{"sentence": "a"}], GOOD, [],
         "train.jsonl:1: has the columns 'sentence'; expected text,text2,label or text,label. To name others, use --columns"),
        (GOOD, [*GOOD, {"text": "b"}], [], "dev.jsonl:9: no column 'label'"),
        (GOOD, GOOD, ["--columns", "text"], "--columns text: expected the names of one or two texts and of the label"),
        (GOOD, GOOD, ["--labels", "x,w"], "train.jsonl:2: the label 'y' is not one of 'x', 'w'"),
        (GOOD, GOOD, ["--held-out", "0.2"], "give one of them"),
        (GOOD, None, ["--held-out", "1.5"], "--held-out 1.5: must be between 0 and 1"),
        (GOOD, GOOD, ["--task", "sst3"], "--task sst3: must be one of classification, regression, "),
        (GOOD, GOOD, ["--task", "regression"], "train.jsonl:1: column 'label': 'x' is not a score"),
        (GOOD, GOOD, ["--workdir", "gs://bucket/w"], "--workdir gs://bucket/w: must be on this machine"),
        (GOOD, GOOD, ["--epochs", "0"], "--epochs 0: must be above 0"),
        (GOOD, GOOD, ["--seeds", "0"], "--seeds 0: must be at least 1"),
        (GOOD, GOOD, ["data.objective.class_weights=1,2,3"], "one for each of model.labels, which are x, y"),
        (GOOD, GOOD, ["evaluate.every=0"], "evaluate.every=0 disables the evaluation"),
        (GOOD, GOOD, ["evaluate.metrics=pearson"], "pearson is a metric of regression"),
        (GOOD, GOOD, ["checkpoint.best=f1"], "checkpoint.best=f1 is not measured: add f1 to evaluate.metrics"),
    ],
)  # fmt: skip
def test_errors_are_reported_before_there_is_a_workdir(
    pretrained, tmp_path, capsys, train, heldout, words, message
):
    command = [
        *split_words(f"finetune --from {pretrained} --train"),
        write_json_lines(tmp_path / "train.jsonl", train),
    ]
    command += [] if "--task" in words else ["--task", "classification"]
    command += (
        [] if heldout is None else ["--heldout", write_json_lines(tmp_path / "dev.jsonl", heldout)]
    )
    assert main([*command, "--workdir", str(tmp_path / "w"), *words]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "w").exists()


def test_a_run_that_cannot_fit_in_memory_is_refused_before_there_is_a_workdir(
    pretrained, tmp_path, capsys, monkeypatch
):
    memory = DeviceMemory(1000, 1000, "host (cpu)")
    monkeypatch.setattr(memory_check, "find_smallest_memory", lambda mesh: memory)
    rows = [{"text": text, "label": str(i % 2)} for i, text in enumerate(make_sentences(40))]
    command = ["finetune", "--from", str(pretrained), "--task", "classification", *FAST]
    command += ["--train", write_json_lines(tmp_path / "train.jsonl", rows)]
    assert main([*command, "--workdir", str(tmp_path / "w")]) == 2
    assert "and host (cpu) has 1,000 bytes. No smaller batch" in capsys.readouterr().err
    assert not (tmp_path / "w").exists()


def test_one_process_begins_it(tmp_path, capsys, monkeypatch):
    for name, value in (
        ("COORDINATOR_ADDRESS", "127.0.0.1:1"),
        ("NUM_PROCESSES", "2"),
        ("PROCESS_ID", "1"),
    ):
        monkeypatch.setenv(f"JAX_{name}", value)
    w = str(tmp_path / "w")
    assert main(["finetune", "--from", "x", "--task", "cola", "--train", "y", "--workdir", w]) == 2
    assert (
        f"`finetune` starts a run in one process (CLOZE_CLUSTER=none); `train {w}/config.json --workdir {w}` resumes"
        in capsys.readouterr().err
    )


def test_models_without_a_head_are_refused(tmp_path, capsys):
    model = SparseTransformerConfig(
        vocab=64, length=16, width=16, depth=1, num_heads=2, mlp=16, pattern="strided", stride=4
    )
    run = Run(model=model, data=Data(objective=CausalLm(length=16)))
    vocabulary = train_vocabulary(make_sentences(300), 40, layout="gpt", algorithm="bpe")
    start_workdir(tmp_path / "sparse", run, jax.jit(make_initializer(run))(), vocabulary)
    train = write_json_lines(tmp_path / "train.jsonl", GOOD)
    assert (
        main(
            [
                *split_words(
                    f"finetune --from {tmp_path / 'sparse'} --task classification --train {train}",
                    "--heldout",
                ),
                write_json_lines(tmp_path / "dev.jsonl", [{"text": "a cat", "label": "x"}]),
                *split_words(f"--workdir {tmp_path / 'w'}"),
            ]
        )
        == 2
    )
    assert (
        "a run of a SparseTransformerConfig; a head needs one of AlbertConfig, BertConfig"
        in capsys.readouterr().err
    )
