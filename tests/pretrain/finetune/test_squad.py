"""From a pretrained workdir and questions to a model that answers them, on the command line; rows
and scores equal `transformers`'.
"""

import dataclasses
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from etils import epath

from data.config import Data
from data.examples import labelled_examples, labelled_store
from data.examples.qa import Question
from data.examples.qa_store import encode_questions, write_questions
from data.objectives import AnswerSpan
from data.pipeline import Stream
from data.store.reader import Store
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.bert import BertConfig
from models.config.span_reader import SpanReaderConfig
from pretrain.__main__ import main
from pretrain.config import Run, override_run
from pretrain.convert import find_model_type, tokenizer
from pretrain.convert.read_write import write_model
from pretrain.finetune.encoders import fit_window
from pretrain.finetune.finetune_options import TaskOptions
from pretrain.finetune.qa_task import QuestionExamples, SpanTask
from pretrain.inference.tasks.predict_answers import AnswerPredictor
from pretrain.mesh.sharding import find_dimension_names, format_path
from pretrain.publish.cards.model_card import make_card
from pretrain.training import truncation_report
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.trained import Trained, open_trained
from pretrain.workdir.workdir import Workdir
from tests.command import split_words
from tests.pretrain.finetune.encoders import FRAMES, TEXT, draw_params, make_encoders
from tests.pretrain.workdirs import start_untrained, write_json_lines

BERT = BertConfig(
    vocab=96, length=32, width=16, depth=1, num_heads=2, mlp=32, dropout=0.0, attention_dropout=0.0
)
NAMES, WORDS = (
    "anna ben carla dora emil".split(),
    "the old green river runs near a quiet house and".split(),
)
FAST = [
    "data.batch_size=32",
    "optimizer.learning_rate=1e-2",
    "data.threads=1",
    "train.compute_dtype=float32",
]
FAST += ["data.objective.length=24", "data.objective.stride=4", "data.objective.question=6"]


def make_questions(count, seed, longest=20):
    """Who sleeps? The one name of a context, or nobody, if it has none. Some contexts take several
    rows.
    """
    rng = np.random.default_rng(seed)
    for number in range(count):
        words = list(rng.choice(WORDS, 2 + int(rng.integers(longest))))
        answers = []
        if number % 3:
            at, name = int(rng.integers(len(words))), str(rng.choice(NAMES))
            words[at:at] = [name, "sleeps"]
            answers = [{"text": name, "answer_start": len(" ".join([*words[:at], ""]))}]
        yield {
            "id": f"q{number}",
            "question": "Who sleeps?",
            "context": " ".join(words),
            "answers": answers,
        }


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Return a workdir of an untrained BERT."""
    workdir = tmp_path_factory.mktemp("pretrained") / "bert"
    vocabulary = train_vocabulary(
        [
            f"{row['context']} {row['question']} sleeps {' '.join(NAMES)}"
            for row in make_questions(200, 0)
        ],
        90,
        algorithm="bpe",
    )
    return start_untrained(workdir, BERT, vocabulary)


@pytest.fixture(scope="module")
def tuned(pretrained, tmp_path_factory):
    """Return (workdir, command, held-out file)."""
    folder = tmp_path_factory.mktemp("tuned")
    paragraphs = [{"context": row["context"], "qas": [row]} for row in make_questions(256, 1)]
    (folder / "train.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    files = (
        str(folder / "train.json"),
        write_json_lines(folder / "dev.jsonl", make_questions(60, 2)),
    )
    command = split_words(
        f"finetune --from {pretrained} --task squad2 --train {files[0]} --heldout {files[1]}"
    )
    command += ["--workdir", str(folder / "w"), "--epochs", "3", *FAST]
    assert main(command) == 0
    return folder / "w", command, files[1]


def test_it_learns_and_predicts_where_the_answer_is(tuned, capsys):
    workdir, command, dev = tuned
    run = Workdir.open(workdir).run
    assert (
        isinstance(run.model, SpanReaderConfig)
        and run.model.unanswerable
        and run.checkpoint.best == "span_f1"
    )
    scored = [
        row
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
        if "heldout_span_f1" in row
    ]
    assert (
        len(scored) == 3
        and scored[-1]["heldout_span_f1"] > 0.9
        and scored[-1]["heldout_exact_match"] > 0.9
    )
    rows = Stream(Store.open(workdir / "store"), run.data).num_rows
    assert (
        rows > 256
        and scored[0]["step"] == -(-rows // 32)
        and run.train.steps == 3 * scored[0]["step"]
    )  # an epoch is all windows
    # Another file is scored at the threshold that the held-out part determined and the checkpoint records.
    with Checkpoints(workdir, read_only=True) as checkpoints:
        recorded_scores = checkpoints.load_scores(max(checkpoints.list_steps()))
    few = write_json_lines(
        workdir.parent / "few.jsonl", list(make_questions(60, 2))[::3]
    )  # none has an answer
    assert main(["evaluate", "--workdir", str(workdir), "--labelled", few, "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert (
        other["store"] == few
        and other["null_threshold"] == recorded_scores["null_threshold"]
        and "perplexity" not in other
    )
    output = workdir.parent / "told.jsonl"
    assert (
        main(["predict", "--workdir", str(workdir), "--input", dev, "--output", str(output)]) == 0
    )
    results = [json.loads(line) for line in output.read_text().splitlines()]
    right = [
        result["answer"] == next((one["text"] for one in result["answers"]), "")
        for result in results
    ]
    assert np.mean(right) == pytest.approx(recorded_scores["exact_match"]) and len(results) == 60
    for result in results:
        silent = result["null_score"] - result["score"] > recorded_scores["null_threshold"]
        assert (
            silent == (result["start"] is None) == (result["answer"] == "")
            and 0 < result["probability"] <= 1
        )
        assert silent or result["context"][result["start"] : result["end"]] == result["answer"]
    capsys.readouterr()
    assert main(command) == 0 and "has already been reached" in capsys.readouterr().out


def test_a_long_context_is_read_to_its_end(tuned, tmp_path, capsys):
    workdir, *_ = tuned
    words = " ".join(WORDS * 12)
    context = f"\t{words} emil sleeps {words}\n"
    path = write_json_lines(
        tmp_path / "a.jsonl",
        [
            {"question": "Who sleeps?", "context": context},
            {"question": "Who sleeps?", "context": words},
        ],
    )
    assert (
        main(["predict", "--workdir", str(workdir), "--input", path, "--json", "--batch-size", "3"])
        == 0
    )
    found, none = map(json.loads, capsys.readouterr().out.splitlines())
    assert (
        found["answer"] == "emil"
        and found["start"] == context.index("emil")
        and none["answer"] == ""
    )
    assert main(["predict", "--workdir", str(workdir), f"Who sleeps?\t{context.strip()}"]) == 0
    assert "%  emil\n" in capsys.readouterr().out


def test_the_n_best_answers(tuned, tmp_path, capsys):
    workdir, _, dev = tuned
    path = write_json_lines(
        tmp_path / "a.jsonl", list(make_questions(12, 2))
    )  # some take several rows
    results = []
    for more in ([], ["--n-best", "4"]):
        assert main(["predict", "--workdir", str(workdir), "--input", path, "--json", *more]) == 0
        results.append(list(map(json.loads, capsys.readouterr().out.splitlines())))
    keys = ("answer", "start", "end", "score", "probability")
    for one, several in zip(*results, strict=True):
        best = several.pop("n_best")
        assert (
            several == one
            and len(best) == 4
            and len({each["answer"] for each in best}) == 4
            and all(tuple(each) == keys for each in best)
        )
        assert best[0] == {key: one[key] for key in keys} | (
            {} if one["answer"] else {"score": one["null_score"]}
        )
        spans = [each for each in best if each["answer"]]
        assert spans == sorted(spans, key=lambda each: -each["score"]) and len(spans) >= 3
        assert all(one["context"][each["start"] : each["end"]] == each["answer"] for each in spans)
    assert {one["answer"] == "" for one in results[0]} == {True, False}
    assert (
        main(
            [
                *split_words(f"predict --workdir {workdir} --n-best 2"),
                "Who sleeps?\tanna sleeps near the house",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out.count("%  ") == 2


def test_the_answers_as_squads_script_reads_them(tuned, tmp_path, capsys):
    """The `.json` output has SQuAD's form, by id, with the answers of the lines; a truncated
    question is marked.
    """
    predict = ["predict", "--workdir", str(tuned[0]), "--input"]
    rows = [
        row | {"question": "Who sleeps?" + " sleeps" * 5 * (n == 4)}
        for n, row in enumerate(make_questions(6, 2))
    ]
    (tmp_path / "a.json").write_text(
        json.dumps(
            {"data": [{"paragraphs": [{"context": row["context"], "qas": [row]} for row in rows]}]}
        )
    )
    assert (
        main([*predict, str(tmp_path / "a.json"), "--output", str(tmp_path / "answers.json")]) == 0
    )
    assert (
        "1 of 6 questions are longer than 6 tokens and were truncated\n" in capsys.readouterr().err
    )
    assert main([*predict, write_json_lines(tmp_path / "a.jsonl", rows), "--json"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert json.loads((tmp_path / "answers.json").read_text()) == {
        one["id"]: one["answer"] for one in results
    } and any(one["answer"] for one in results)
    assert [one.get("cut") for one in results] == [True if n == 4 else None for n in range(6)]
    for few, more, message in (
        ([rows[0], {"question": "Who?", "context": "a"}], [], "b.jsonl:2: has no `id`, which"),
        ([rows[0], rows[1], rows[0]], [], "b.jsonl:3: the id 'q0' occurs twice"),
        ([rows[0]], ["--n-best", "2"], "for --n-best, name a file that ends in .jsonl"),
    ):
        assert (
            main(
                [
                    *predict,
                    write_json_lines(tmp_path / "b.jsonl", few),
                    *split_words(f"--output {tmp_path / 'b.json'}"),
                    *more,
                ]
            )
            == 2
        )
        assert message in capsys.readouterr().err and not (tmp_path / "b.json").exists()


def test_errors_are_reported(tuned, pretrained, tmp_path, capsys):
    workdir, command, dev = tuned
    predict = ["predict", "--workdir", str(workdir), "--input"]
    for row, message in (
        ({"question": "Who?"}, "a.jsonl:1: expected question and context, each a text; this has 'question'"),
        ({"question": "Who?", "context": " "}, "a.jsonl:1: column 'context' is empty"),
        ({"question": " ", "context": "a"}, "a.jsonl:1: column 'question' is empty"),
        ({"question": "Who?", "context": "\u200b"}, "a.jsonl:1: the vocabulary has no piece for its context"),
    ):  # fmt: skip
        assert (
            main([*predict, write_json_lines(tmp_path / "a.jsonl", [row])]) == 2
            and message in capsys.readouterr().err
        )
    begin = split_words(
        f"finetune --from {pretrained} --task squad --workdir {tmp_path / 'w'} --train"
    )
    assert (
        main([*begin, dev]) == 2
        and "dev.jsonl:1: it has no answer; --task squad2 allows" in capsys.readouterr().err
    )
    silent = write_json_lines(tmp_path / "c.jsonl", list(make_questions(60, 2))[::3])
    assert (
        main(
            [
                *(word.replace("squad", "squad2") if word == "squad" else word for word in begin),
                silent,
            ]
        )
        == 2
        and "c.jsonl: none of its 20 questions has an answer" in capsys.readouterr().err
    )
    assert (
        main([*begin, dev, "--labels", "a,b"]) == 2
        and "--columns and --labels are for texts with labels" in capsys.readouterr().err
    )
    bad = [row | {"answers": [{"text": "dog", "answer_start": 0}]} for row in make_questions(2, 1)]
    path = write_json_lines(
        tmp_path / "b.jsonl", [*(row for row in make_questions(40, 1) if row["answers"]), *bad]
    )
    assert (
        main([*begin, path]) == 2
        and "b.jsonl:27: the answer 'dog' is not at character 0" in capsys.readouterr().err
    )
    # Settings that leave no room are refused before anything is written; the bad question was counted by
    # then.
    assert (
        main(
            [
                *begin,
                *split_words(
                    f"{path} --held-out 0.4 --on-bad-answer skip data.objective.stride=30"
                ),
            ]
        )
        == 2
    )
    err = capsys.readouterr().err
    assert (
        "b.jsonl: skipped 2 bad examples, the first: " in err
        and "length=32 leaves 21 tokens" in err
    )
    assert not (tmp_path / "w").exists()
    assert (
        main(["evaluate", "--workdir", str(workdir), "--labelled", path]) == 2
        and "b.jsonl:27: the answer" in capsys.readouterr().err
    )
    one = {"heldout": [labelled_examples.Example(("a fox",), "fox", "here")]}
    labelled_store.write_labelled(
        tmp_path / "store", open_trained(workdir).vocabulary, one, ("none", "fox")
    )
    assert main(["evaluate", "--workdir", str(workdir), "--store", str(tmp_path / "store")]) == 2
    assert "its documents are not contexts with questions" in capsys.readouterr().err


# ---- with transformers -----------------------------------------------------

ENCODERS = make_encoders(length=40)
PAIRS = [(a, b) for a in ("What is left out?", "And who?") for b in (*TEXT, " ".join(TEXT * 2))]


def make_reader(name, vocabularies):
    """Return a model with random parameters, none of them 0."""
    objective = AnswerSpan(length=36, stride=5, question=14, **FRAMES.get(name, {}))
    run = Run(
        model=SpanReaderConfig(encoder=ENCODERS[name], unanswerable=True, dropout=0.25),
        data=Data(objective=objective, batch_size=8),
    )
    params = draw_params(run)
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        find_dimension_names(
            format_path(keys), leaf.shape
        )  # raises unless exactly one row of the table matches
    return Trained("w", run, 7, params, vocabularies[name])


def with_questions(trained, tokens):
    objective = dataclasses.replace(trained.run.data.objective, question=tokens)
    return dataclasses.replace(
        trained, run=dataclasses.replace(trained.run, data=Data(objective=objective))
    )


def test_it_is_silent_above_the_threshold_alone(vocabularies):
    """No answer is predicted if the null score exceeds the best answer's by more than the
    threshold; a model without unanswerable questions always answers.
    """
    trained = make_reader("bert", vocabularies)

    def answer_questions(**how):
        run = dataclasses.replace(trained.run, model=dataclasses.replace(trained.run.model, **how))
        return AnswerPredictor(dataclasses.replace(trained, run=run), 4)(PAIRS, [None] * len(PAIRS))

    always = answer_questions(threshold=1e9)
    doubts = np.array([one["null_score"] - one["score"] for one in always])
    middle = float(np.sort(doubts)[3])  # one that equals a question's difference
    for threshold, expected in (
        (1e9, doubts > np.inf),
        (middle, doubts > middle),
        (-1e9, doubts > -np.inf),
    ):
        found = answer_questions(threshold=threshold)
        assert (
            [one["start"] is None for one in found]
            == [one["answer"] == "" for one in found]
            == expected.tolist()
        )
        for one, answered_always, silent in zip(found, always, expected):
            assert (one["score"], one["null_score"]) == (
                answered_always["score"],
                answered_always["null_score"],
            )
            assert (one["probability"] == answered_always["probability"]) == (not silent)
    assert answer_questions(threshold=-1e9, unanswerable=False) == always


def test_dropout_of_the_head_is_as_in_the_authors_code():
    for name, dropout in (("bert", 0.0), ("distilbert", 0.1)):
        found = QuestionExamples(SpanTask(True, ()), {}).make_model_config(
            SimpleNamespace(run=SimpleNamespace(model=ENCODERS[name]))
        )
        assert found == SpanReaderConfig(encoder=ENCODERS[name], dropout=dropout, unanswerable=True)


def stream_of(trained, folder):
    part = {"train": [Question(str(i), *pair, (), "here") for i, pair in enumerate(PAIRS)]}
    store = write_questions(
        folder,
        trained.vocabulary,
        part,
        {"train": encode_questions(trained.vocabulary, part["train"])},
    )
    return Stream(store, dataclasses.replace(trained.run.data, batch_size=32))


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet"])
def test_windows_are_those_of_the_exported_tokenizer(name, vocabularies, tmp_path):
    trained = make_reader(name, vocabularies)
    stream = stream_of(trained, tmp_path / "store")
    batch, theirs = (
        stream.build_evaluation_batch(0),
        tokenizer.build_tokenizer(trained.vocabulary, find_model_type(trained.run.model)),
    )
    theirs.enable_truncation(36, stride=5, strategy="only_second")
    expected = [
        one
        for pair in PAIRS
        for first in [theirs.encode(*pair)]
        for one in (first, *first.overflowing)
    ]
    assert stream.num_rows == len(expected) > len(PAIRS) + 6
    lines = truncation_report.describe_stream(
        stream_of(with_questions(trained, 3), tmp_path / "short")
    )
    assert [line for line in lines if "unknown to the vocabulary" not in line] == [
        f"truncated: {len(PAIRS)} questions that are longer than 3 tokens"
    ]
    for i, encoding in enumerate(expected):
        assert batch["token_ids"][i, batch["attention_mask"][i]].tolist() == encoding.ids
        if name != "roberta":
            assert (
                batch["token_type_ids"][i, batch["attention_mask"][i]].tolist() == encoding.type_ids
            )


@pytest.mark.more
@pytest.mark.parametrize("name", ENCODERS)
def test_transformers_predicts_the_same(name, vocabularies, tmp_path):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    trained = make_reader(name, vocabularies)
    write_model(tmp_path / "out", trained.run.model, trained.params, trained.vocabulary)
    model, info = transformers.AutoModelForQuestionAnswering.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(info.values()), info
    assert getattr(model.config, "qa_dropout", None) == (0.25 if name == "distilbert" else None)
    batch = stream_of(trained, tmp_path / "store").build_evaluation_batch(0)
    ours = jax.jit(build(trained.run.model).apply)(
        {"params": trained.params},
        batch["token_ids"],
        batch["attention_mask"],
        batch["token_type_ids"],
    )
    inputs = {
        "input_ids": torch.tensor(batch["token_ids"]),
        "attention_mask": torch.tensor(batch["attention_mask"].astype(np.int32)),
    }
    if name not in ("roberta", "distilbert"):
        inputs["token_type_ids"] = torch.tensor(batch["token_type_ids"])
    with torch.no_grad():
        found = model.eval()(**inputs)
    theirs = np.stack([found.start_logits.numpy(), found.end_logits.numpy()], axis=-1)
    np.testing.assert_allclose(
        np.asarray(ours)[batch["attention_mask"]], theirs[batch["attention_mask"]], atol=1e-4
    )


def test_the_model_card_describes_the_model(vocabularies, tmp_path):
    (tmp_path / "origin.json").write_text(
        json.dumps({"folder": "bert_mini", "pretrained_step": 7500})
    )
    trained = dataclasses.replace(
        make_reader("bert", vocabularies), workdir=Workdir(epath.Path(tmp_path))
    )
    card = make_card(trained)
    assert (
        "pipeline_tag: question-answering\n" in card
        and "| answers | a span of the context, or none |" in card
    )
    assert (
        "where answers to questions begin and end, rows of 36 that share 5" in card
        and "AutoModelForQuestionAnswering" in card
    )


def test_an_answer_that_the_vocabulary_does_not_see_can_be_left_out(vocabularies, tmp_path, capsys):
    good = [row for row in make_questions(9, 1) if row["answers"]]
    odd = {
        "question": "Who?",
        "context": "a fox\u200b",
        "answers": [{"text": "\u200b", "answer_start": 5}],
    }
    whole, mixed, none = (
        write_json_lines(tmp_path / name, rows)
        for name, rows in (("a.jsonl", good), ("b.jsonl", [odd, *good, odd]), ("c.jsonl", [odd]))
    )
    task, vocabulary, args = (
        SpanTask(False, ()),
        vocabularies["bert"],
        TaskOptions("squad", on_bad_example="skip"),
    )
    found = task.read_examples(args, mixed, whole, 0.1)
    assert (
        len(found.encode_questions(vocabulary)["train"].spans_Q6)
        == len(found.parts["train"])
        == len(good)
    )
    assert found.digest_examples() == task.read_examples(args, whole, whole, 0.1).digest_examples()
    assert (
        "b.jsonl: skipped 2 questions (train) because the vocabulary has no token for their answer"
        in capsys.readouterr().err
    )
    with pytest.raises(
        ValueError,
        match=r"c.jsonl:1: the vocabulary has no piece for the answer .*, nor for any other answer there \(heldout\)",
    ):
        task.read_examples(args, whole, none, 0.1).encode_questions(vocabulary)
    args = TaskOptions("squad", on_bad_example="refuse")
    with pytest.raises(
        ValueError,
        match="b.jsonl:1: the vocabulary has no piece for the answer .*; --on-bad-example skip skips such",
    ):
        task.read_examples(args, mixed, whole, 0.1).encode_questions(vocabulary)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["data.objective.length=64"], (64, 21, 16)),
        (["data.objective.length=64", "data.objective.stride=4"], (64, 4, 16)),
        (["data.objective.length=64", "data.objective.question=9"], (64, 21, 9)),
        (["data.objective.stride=7"], (384, 7, 64)),
        ([], (384, 128, 64)),
    ],
)
def test_shorter_rows_need_no_other_setting(given, expected):
    run = Run(model=SpanReaderConfig(encoder=BERT), data=Data(objective=AnswerSpan()))
    keys = {argument.partition("=")[0] for argument in given}
    objective = fit_window(override_run(run, given), keys).data.objective
    assert (objective.length, objective.stride, objective.question) == expected
    objective.check_vocabulary(SimpleNamespace(cls=0, sep=1, pad=2))
