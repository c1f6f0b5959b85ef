"""T5 generates the answers: labelled tasks and pairs by the same command, scored by the generated
text, by `predict` and by `transformers`.
"""

import json
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

from data.examples.labelled_examples import Columns, parse_class, parse_score, read_examples
from data.examples.text_pairs import decode_output, make_answer_reader
from data.objectives import Text2Text
from data.vocabulary.load import train_vocabulary
from models.config.bart import BartConfig
from models.config.bert import BertConfig
from models.config.t5 import T5Config
from pretrain.__main__ import main
from pretrain.evaluation.generated_answers import GeneratedAnswerEvaluator
from pretrain.evaluation.task_metrics import check_metrics, find_metric_kind, score_written_texts
from pretrain.finetune.labelled_task import LabelledExamples
from pretrain.finetune.tasks import TASKS
from pretrain.finetune.text2text_task import TextExamples, convert_to_text, find_label_words
from pretrain.settings.overrides import ConfigError
from pretrain.workdir import metrics_file
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir
from tests.command import split_words
from tests.pretrain.workdirs import start_untrained, write_json_lines
from tests.store_files import generation_folder

T5 = T5Config(
    vocab=192, width=32, depth=1, decoder_depth=1, num_heads=4, head_width=8, mlp=64, dropout=0.0
)
WORDS = "the a fox dog river stone runs sees near old equivalent not_equivalent".split()
FAST = [
    "data.batch_size=32",
    "data.threads=1",
    "optimizer.learning_rate=0.03",
    "data.objective.length=32",
]


def make_sentences(count, seed=0):
    """Return a sentence of two to four words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS[:10], 2 + int(rng.integers(3)))) for _ in range(count)]


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(
        [*make_sentences(300), *WORDS * 20, "mrpc sentence1: sentence2: 0 1 2 4 5 8 . !"],
        150,
        layout="t5",
        algorithm="bpe",
    )


@pytest.fixture(scope="module")
def pretrained(vocabulary, tmp_path_factory):
    """Return a workdir of an untrained T5."""
    workdir = tmp_path_factory.mktemp("pretrained") / "t5"
    return start_untrained(workdir, T5, vocabulary)


@pytest.fixture(scope="module")
def tuned(pretrained, tmp_path_factory):
    """Return (workdir, held-out rows, their file): do two texts both mention a fox, in MRPC's
    format.
    """
    folder = tmp_path_factory.mktemp("tuned")
    pairs = list(zip(make_sentences(330, 1), make_sentences(330, 2)))
    rows = [
        {"sentence1": a, "sentence2": b, "label": int("fox" in a.split() or "fox" in b.split())}
        for a, b in pairs
    ]
    files = (
        write_json_lines(folder / "train.jsonl", rows[:256]),
        write_json_lines(folder / "dev.jsonl", rows[256:]),
    )
    command = split_words(
        f"finetune --from {pretrained} --task mrpc --train {files[0]} --heldout {files[1]}"
    )
    assert main([*command, "--workdir", str(folder / "w"), "--epochs", "3", *FAST]) == 0
    return folder / "w", rows[256:], files[1]


def test_a_labelled_task_is_written_and_measured(tuned, tmp_path, capsys):
    workdir, rows, dev = tuned
    run = Workdir.open(workdir).run
    assert run.data.objective == Text2Text(
        **dict(
            length=32,
            target_length=run.data.objective.target_length,
            columns=("sentence1", "sentence2", "label"),
        ),
        **dict(
            prefix="mrpc ",
            names=("sentence1", "sentence2"),
            labels=("0", "1"),
            words=("not_equivalent", "equivalent"),
        ),
    )
    assert (
        open_trained(workdir).read_origin()["fresh"] == []
        and run.checkpoint.best == "f1"
        and type(run.optimizer).__name__ == "Adafactor"
    )
    scored = [
        row
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
        if "heldout_accuracy" in row
    ]
    assert len(scored) == 3 and scored[-1]["heldout_text2text"] < scored[0]["heldout_text2text"]
    assert (
        main(
            split_words(
                f"predict --workdir {workdir} --input {dev} --output {tmp_path / 'told.jsonl'}",
                "--batch-size 16",
            )
        )
        == 0
    )
    results = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    assert {one["written"] for one in results} <= {
        *WORDS[-2:],
        *(one["written"] for one in results if one["label"] is None),
    }
    assert all(
        one["label"] == {"equivalent": "1", "not_equivalent": "0"}.get(one["written"])
        for one in results
    )
    right = np.mean([one["label"] == str(row["label"]) for one, row in zip(results, rows)])
    assert scored[-1]["heldout_accuracy"] == right > 0.3 and scored[-1]["heldout_no_label"] == sum(
        one["label"] is None for one in results
    )
    capsys.readouterr()
    few = write_json_lines(tmp_path / "few.jsonl", rows[:20])
    assert main(["evaluate", "--workdir", str(workdir), "--labelled", few, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 20 and found["accuracy"] == np.mean(
        [one["label"] == str(row["label"]) for one, row in zip(results[:20], rows)]
    )
    assert (
        main(
            [
                *split_words(f"predict --workdir {workdir}"),
                "a fox\tthe " + "old dog " * 40,
                *split_words("--beams 2 --json"),
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["cut"] is True
    other = write_json_lines(
        tmp_path / "other.jsonl", [{"sentence1": "a", "sentence2": "b", "label": 3}]
    )
    assert main(["evaluate", "--workdir", str(workdir), "--labelled", other]) == 2
    assert "other.jsonl:1: the label '3' is not one of '0', '1'" in capsys.readouterr().err


@pytest.mark.more
def test_transformers_writes_the_same(tuned, tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    workdir, rows, dev = tuned
    assert main(["export", "--workdir", str(workdir), "--output", str(tmp_path / "t5")]) == 0
    assert "mrpc sentence1: It is a text. sentence2: This is another." in capsys.readouterr().out
    card = (tmp_path / "t5" / "README.md").read_text()
    assert (
        "| writes | `not_equivalent`, `equivalent` |" in card
        and "from step 0 of `t5`" in card
        and "knows no other task" in card
    )
    assert main(["predict", "--workdir", str(workdir), "--input", dev, "--json"]) == 0
    results = [json.loads(line)["written"] for line in capsys.readouterr().out.splitlines()]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "t5").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "t5")
    texts = [
        f"mrpc sentence1: {row['sentence1']} sentence2: {row['sentence2']}" for row in rows[:12]
    ]
    ids = tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
    most = Workdir.open(workdir).run.data.objective.target_length
    with torch.no_grad():
        written = model.generate(**ids, max_new_tokens=most, do_sample=False)
    assert [
        text.strip() for text in tokenizer.batch_decode(written, skip_special_tokens=True)
    ] == results[:12]


@pytest.mark.more
def test_pairs_of_texts(pretrained, tuned, tmp_path, capsys):
    rows = [{"en": text, "xx": " ".join(reversed(text.split()))} for text in make_sentences(80, 3)]
    command = split_words(
        f"finetune --from {pretrained} --task text2text --columns en,xx --prefix 'old river: '"
    )
    command += [
        "--train",
        write_json_lines(tmp_path / "train.jsonl", rows),
        *split_words(f"--held-out 0.3 --workdir {tmp_path / 'w'}"),
        *FAST,
    ]
    same = Workdir.open(
        tuned[0]
    ).run.data.objective.target_length  # and steps: the compiled program is the same
    assert (
        main(
            [
                *command,
                f"data.objective.target_length={same}",
                "train.steps=24",
                "evaluate.every=24",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "best by bleu at step" in out and "rougeL" in out
    assert main(["predict", "--workdir", str(tmp_path / "w"), "a fox runs"]) == 0
    assert capsys.readouterr().out.startswith("a fox runs\n  ")
    store = tmp_path / "w" / "store"
    # The held-out score is the score of `predict`'s output.
    answers = [
        json.loads(line)
        for line in (generation_folder(store) / "heldout" / "answers.jsonl")
        .read_text()
        .splitlines()
    ]
    asked = write_json_lines(
        tmp_path / "asked.jsonl", [{"en": " ".join(reversed(answer.split()))} for answer in answers]
    )
    assert main(["predict", "--workdir", str(tmp_path / "w"), "--input", asked, "--json"]) == 0
    written = [json.loads(line)["written"] for line in capsys.readouterr().out.splitlines()]
    scored = metrics_file.read_metrics(tmp_path / "w" / "metrics.jsonl")[-1]
    for name in ("bleu", "rouge1", "rougeL"):
        expected = score_written_texts([name], written, answers)[name]
        assert scored[f"heldout_{name}"] == pytest.approx(expected)
    assert scored["heldout_rouge1"] > 0
    first = open_trained(pretrained).vocabulary.encode("old river: ")
    from data.store.reader import Store

    train = Store.open(store).open_split("train")
    assert train.tokens[: len(first)].tolist() == first


@pytest.fixture(scope="module")
def score_answers(vocabulary):
    """Return judge(spec, metrics, written, answers): the scores of the held-out part, without a
    model.
    """

    def score_texts(spec, names, written, answers, path):
        path.mkdir(exist_ok=True)
        (path / "answers.jsonl").write_text(
            "".join(json.dumps(answer) + "\n" for answer in answers)
        )
        self = SimpleNamespace(objective=spec, vocabulary=vocabulary)
        return GeneratedAnswerEvaluator.score_texts(
            self, names, written, SimpleNamespace(folder=path)
        )

    return score_texts


def test_a_text_that_is_no_label_is_wrong_and_counted(score_answers, vocabulary, tmp_path):
    spec = Text2Text(columns=("t", "l"), labels=("0", "1"), words=("not_equivalent", "equivalent"))
    written = ["equivalent", "not_equivalent", "fox", "", "equivalent"]
    answers = ["equivalent", "equivalent", "equivalent", "not_equivalent", "not_equivalent"]
    # The third counts as class 0 and the fourth as class 1: one of three ones is found, of three
    # predictions.
    assert score_answers(spec, ("accuracy",), written, answers, tmp_path / "a") == {
        "accuracy": 0.2,
        "no_label": 2,
    }
    pytest.importorskip("sklearn", reason="the extra `metrics` is not installed")
    assert score_answers(spec, ("f1",), written, answers, tmp_path / "a")["f1"] == pytest.approx(
        1 / 3
    )
    assert score_answers(spec, ("matthews",), answers, answers, tmp_path / "a") == {
        "matthews": 1.0,
        "no_label": 0,
    }


def test_plain_texts_are_scored_without_a_model(score_answers, tmp_path):
    pytest.importorskip("sacrebleu", reason="the extra `metrics` is not installed")
    texts = ["the fox and the dog", "a word and another word"]
    found = score_answers(Text2Text(), ("bleu",), texts, texts, tmp_path / "a")
    assert found["bleu"] == pytest.approx(100)


def test_scores_that_are_written(score_answers, tmp_path):
    spec, right = Text2Text(columns=("t", "s"), step=0.2), ["0.0", "1.2", "4.8", "5.0"]
    found = score_answers(spec, ("pearson",), ["0.2", "nan", "4.0", "a fox"], right, tmp_path / "a")
    expected = np.corrcoef([0.2, 5.0, 4.0, 0.0], [0.0, 1.2, 4.8, 5.0])[
        0, 1
    ]  # a text that is not a number counts as the farthest score
    assert found == {"pearson": pytest.approx(expected), "no_label": 2}
    found = score_answers(
        spec, ("pearson",), ["0.2", "1.2", "4.0"], [0.27, 1.13, 4.0], tmp_path / "b"
    )  # as they were in the file
    assert found == {
        "pearson": pytest.approx(np.corrcoef([0.2, 1.2, 4.0], [0.27, 1.13, 4.0])[0, 1], abs=1e-12),
        "no_label": 0,
    }


def test_texts_are_compared_with_the_answers(score_answers, tmp_path):
    texts = ["the old fox runs near a river", "a dog sees the stone", "a"]
    found = score_answers(Text2Text(), ("bleu", "rouge1", "rougeL"), texts, texts, tmp_path / "a")
    assert found == pytest.approx({"bleu": 100, "rouge1": 100, "rougeL": 100})
    worse = score_answers(
        Text2Text(),
        ("bleu", "rouge1", "rougeL"),
        texts,
        ["runs the old fox near a river", "a dog sees the stone", "b"],
        tmp_path / "a",
    )
    assert worse["bleu"] < 80 and worse["rouge1"] == pytest.approx(200 / 3) and worse["rougeL"] < 66


def test_the_words_of_a_task(vocabulary, tmp_path):
    assert find_label_words("mnli", ("0", "1", "2")) == ("entailment", "neutral", "contradiction")
    assert find_label_words("mnli", ("contradiction", "entailment", "neutral")) == (
        "contradiction",
        "entailment",
        "neutral",
    )
    assert (
        find_label_words("rte", ("0", "1", "2"))
        == ("0", "1", "2")
        == find_label_words("classification", ("0", "1", "2"))
    )
    alike = Text2Text(columns=("t", "l"), labels=("a", "b"), words=("fox", " fox"))
    with pytest.raises(ValueError, match="spells the classes 'a' and 'b' alike, as 'fox'"):
        make_answer_reader(alike, vocabulary)
    file = write_json_lines(
        tmp_path / "s.jsonl",
        [
            {"premise": "a", "hypothesis": "b", "label": "x"},
            {"premise": "c", "hypothesis": "d", "label": "y"},
        ],
    )
    columns = Columns(("premise", "hypothesis"), "label")
    trained = SimpleNamespace(vocabulary=vocabulary, run=SimpleNamespace(model=T5), workdir="w")
    found = convert_to_text(
        "mnli",
        LabelledExamples(
            TASKS["mnli"], {"train": read_examples(file, columns, parse_class)}, ("x", "y"), columns
        ),
        trained,
    )
    assert found.parts == {
        "train": [("mnli hypothesis: b premise: a", "x"), ("mnli hypothesis: d premise: c", "y")]
    }
    file = write_json_lines(
        tmp_path / "r.jsonl", [{"text": "a", "label": 1}, {"text": "c", "label": 9.9}]
    )
    columns = Columns(("text",), "label")
    scores = convert_to_text(
        "regression",
        LabelledExamples(
            TASKS["regression"], {"train": read_examples(file, columns, parse_score)}, (), columns
        ),
        trained,
    )
    assert (
        scores.parts
        == {"train": [("regression text: a", "1.0", 1.0), ("regression text: c", "10.0", 9.9)]}
        and scores.spec.step == 0.5
    )
    assert (
        scores.digest_examples()
        == TextExamples(
            scores.spec, {"train": [pair[:2] for pair in scores.parts["train"]]}, ()
        ).digest_examples()
    )
    scores.write_store(tmp_path / "store", vocabulary)
    assert (
        generation_folder(tmp_path / "store") / "train" / "answers.jsonl"
    ).read_text().splitlines() == [
        "1.0",
        "9.9",
    ]
    assert (
        scores.spec.target_length
        == max(len(vocabulary.encode(text)) for text in ("1.0", "10.0")) + 1
    )
    bart = found.make_objective(BartConfig(vocab=64, length=24))
    assert (
        bart.start_of_text
        and bart.length == 24
        and bart.target_length == found.spec.target_length + 1
    )
    unspelt = Text2Text(
        columns=("t", "l"), labels=("a", "b"), words=("fox#dog", "fox")
    )  # no token for #
    ids = [*vocabulary.encode("fox#dog"), vocabulary.eos, *vocabulary.encode("river")]
    assert (
        vocabulary.unk in ids
        and make_answer_reader(unspelt, vocabulary)(decode_output(vocabulary, ids)) == "a"
    )
    strange = [vocabulary.sentinels[0], vocabulary.size + 3]
    assert (
        decode_output(
            vocabulary,
            [*vocabulary.encode("fox"), *strange, *vocabulary.encode("dog"), vocabulary.eos, 5],
        )
        == "fox dog"
    )
    file = write_json_lines(
        tmp_path / "t.jsonl", [{"text": "a", "label": 33}, {"text": "c", "label": 77}]
    )
    with pytest.raises(
        ValueError, match="w: its vocabulary cannot represent the score 34; regression needs digits"
    ):
        convert_to_text(
            "regression",
            LabelledExamples(
                TASKS["regression"],
                {"train": read_examples(file, columns, parse_score)},
                (),
                columns,
            ),
            trained,
        )
    with pytest.raises(
        ValueError,
        match="w is a run of a BertConfig; only BartConfig .*T5Config.* can learn to generate answers",
    ):
        found.make_model_config(
            SimpleNamespace(run=SimpleNamespace(model=BertConfig()), workdir="w")
        )


def test_invalid_metrics_and_files_of_text_are_refused(pretrained, tmp_path, capsys):
    classes = Text2Text(columns=("t", "l"), labels=("a", "b", "c"), words=("a", "b", "c"))
    with pytest.raises(
        ConfigError,
        match="bleu is a metric of text2text and seq2seq; the metrics of classification are accuracy",
    ):
        check_metrics(("bleu",), *find_metric_kind(classes, T5))
    with pytest.raises(ConfigError, match="f1 needs two classes, there are 3"):
        check_metrics(("f1",), *find_metric_kind(classes, T5))
    with pytest.raises(
        ConfigError,
        match="accuracy is a metric of classification.*; the metrics of text2text are bleu, bleu_13a",
    ):
        check_metrics(("accuracy",), *find_metric_kind(Text2Text(), T5))
    task = TASKS["text2text"]
    train = write_json_lines(
        tmp_path / "train.jsonl", [{"source": "a", "target": "b"}, {"source": "a", "target": " "}]
    )
    for changed, message in (
        (dict(columns="a"), "--columns a: expected the names of the source and of the target"),
        (dict(labels="x,y"), "--labels names classes"),
        (dict(), "train.jsonl:2: column 'target': the answer is empty"),
    ):
        with pytest.raises(ValueError, match=message):
            task.read_examples(
                Namespace(
                    **dict(
                        columns=None,
                        labels=None,
                        prefix=None,
                        on_bad_example="refuse",
                        file_format=None,
                    )
                    | changed
                ),
                train,
                None,
                0.5,
            )
    alike = write_json_lines(
        tmp_path / "alike.jsonl", [{"source": text, "target": "b"} for text in "ac"]
    )
    with pytest.raises(
        ValueError, match="alike.jsonl: all 2 examples have the label 'b'; nothing can be learned"
    ):
        task.read_examples(
            Namespace(
                columns=None, labels=None, prefix=None, on_bad_example="refuse", file_format=None
            ),
            alike,
            None,
            0.5,
        )
    command = split_words(
        f"finetune --from {pretrained} --workdir {tmp_path / 'w'} --train {train} --task"
    )
    assert (
        main([*command, "mrpc", "--prefix", "x"]) == 2
        and "--prefix needs --task text2text" in capsys.readouterr().err
    )
    assert not (tmp_path / "w").exists()
