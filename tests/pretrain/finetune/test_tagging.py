"""From a pretrained workdir and a CoNLL file to a tagger, on the command line."""

import json
import pathlib

import numpy as np
import pytest

from data.examples.tag_schemes import find_entities
from pretrain.__main__ import main
from pretrain.workdir import metrics_file
from pretrain.workdir.workdir import Workdir
from tests.command import split_words

WORDS = "the a fox dog river stone runs sees near old".split()
FAST = [
    "data.batch_size=32",
    "optimizer.learning_rate=5e-3",
    "data.objective.length=10",
    "data.threads=1",
]


def make_sentences(count, seed):
    """Return [(words, tags)]: animals are entities, including a preceding `old`."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        words = rng.choice(WORDS, 3 + int(rng.integers(3))).tolist()
        tags = ["O"] * len(words)
        for i in (i for i, word in enumerate(words) if word in ("fox", "dog")):
            begins = i and words[i - 1] == "old"
            tags[i], tags[i - 1] = ("I-animal", "B-animal") if begins else ("B-animal", tags[i - 1])
        found.append((words, tags))
    return found


def write_columns(path, rows):
    path.write_text(
        "\n".join("".join(f"{word}\t{tag}\n" for word, tag in zip(*row)) for row in rows)
    )
    return str(path)


@pytest.fixture(scope="module")
def tuned(untrained, tmp_path_factory):
    """Return (workdir, the held-out sentences, their file)."""
    folder = tmp_path_factory.mktemp("tuned")
    held_out = [*make_sentences(60, 1), (["fox"] * 20, ["B-animal"] * 20)]
    files = (
        write_columns(folder / "train.conll", make_sentences(256, 0)),
        write_columns(folder / "dev.conll", held_out),
    )
    command = split_words(
        f"finetune --from {untrained} --task tagging --train {files[0]} --heldout {files[1]}"
    )
    assert main([*command, "--workdir", str(folder / "w"), "--epochs", "3", *FAST]) == 0
    return folder / "w", held_out, files[1]


def test_it_learns_and_predicts(tuned, capsys):
    workdir, held_out, dev = tuned
    run = Workdir.open(workdir).run
    assert (
        run.model.labels == ("O", "B-animal", "I-animal")
        and run.model.scheme == "bio"
        and run.checkpoint.best == "entity_f1"
    )
    scored = [
        row["heldout_entity_f1"]
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
        if "heldout_entity_f1" in row
    ]
    assert len(scored) == 3 and max(scored) > 0.7
    other = workdir.parent / "other.conll"  # the same, and a word without a token in the vocabulary
    other.write_text(pathlib.Path(dev).read_text() + "\u200b\tO\n")
    assert main(["evaluate", "--workdir", str(workdir), "--labelled", str(other), "--json"]) == 0
    predictions = capsys.readouterr()
    assert (
        f"{other}: skipped 1 words and their tags, because the vocabulary has no token"
        in predictions.err
    )
    assert (
        "truncated: 1 examples that are longer than a row of 10\n12 words of these are beyond the end of a row"
        in predictions.err
    )
    evaluated = json.loads(predictions.out)
    assert (
        evaluated["rows"] == 61
        and evaluated["unread_words"] == 12
        and evaluated["entity_f1"] == scored[-1]
    )
    output = workdir.parent / "told.jsonl"
    assert (
        main(["predict", "--workdir", str(workdir), "--input", dev, "--output", str(output)]) == 0
    )
    assert (
        "1 of 61 sentences are longer than a row of 10 tokens and were truncated"
        in capsys.readouterr().err
    )
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(result["words"], result["given_tags"]) for result in results] == held_out
    # Scores of the output of `predict`, computed by hand, equal `evaluate`'s; entities beyond the
    # end of a truncated sentence are missed.
    there = [set(find_entities(result["given_tags"])) for result in results]
    predictions = [
        {(one["type"], one["start"], one["end"]) for one in result["entities"]}
        for result in results
    ]
    both = sum(len(a & b) for a, b in zip(there, predictions))
    assert evaluated["entity_precision"] == pytest.approx(both / sum(map(len, predictions)))
    assert evaluated["entity_recall"] == pytest.approx(both / sum(map(len, there)))
    assert (
        results[-1]["cut"]
        and set(results[-1]["tags"][8:]) == {"O"}
        and not any(result.get("cut") for result in results[:-1])
    )
    for result in results:
        assert len(result["tags"]) == len(result["words"])
        assert all(
            one["text"] == " ".join(result["words"][one["start"] : one["end"]])
            for one in result["entities"]
        )


def test_text_is_parted_at_white_space(tuned, tmp_path, capsys):
    workdir, *_ = tuned
    (tmp_path / "a.txt").write_text("the old fox runs\nriver stone\n")
    assert (
        main(["predict", "--workdir", str(workdir), "--input", str(tmp_path / "a.txt"), "--json"])
        == 0
    )
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (
        len(first["tags"]) == 4 and len(second["tags"]) == 2 and first["text"] == "the old fox runs"
    )
    assert main(["predict", "--workdir", str(workdir), "the  old fox runs", "stone"]) == 0
    assert "the old fox runs\n    animal      " in capsys.readouterr().out
    (tmp_path / "b.jsonl").write_text('{"tokens": ["a"]}\n{"sentence": "a"}\n')
    assert main(["predict", "--workdir", str(workdir), "--input", str(tmp_path / "b.jsonl")]) == 2
    assert (
        "b.jsonl:2: expected words or tokens, a list of words, or text; this has 'sentence'"
        in capsys.readouterr().err
    )


GOOD = [(["a", "fox"], ["O", "B-x"]), (["dog"], ["B-x"])]


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("train", "heldout", "words", "message"),
    [
        (GOOD, [(["a", "dog"], ["O", "B-y"])], [], "dev.conll:2: the tag 'B-y' is not one of 'O', 'B-x', 'I-x'"),
        (GOOD[1:], GOOD, [], "train.conll: all words have the tag 'B-x'"),
        (GOOD, GOOD, ["--scheme", "plain", "evaluate.metrics=entity_f1"],
         "entity_f1 is computed from entities, which plain tags do not encode"),
        (GOOD, GOOD, ["--task", "classification", "--scheme", "bio"], "--scheme needs --task tagging"),
        (GOOD, GOOD, ["--labels", "O,B-y"], "train.conll:2: the tag 'B-x' is not one of 'O', 'B-y'"),
        (GOOD, GOOD[:1], ["data.objective.length=2"], "tagging: length=2"),
        (GOOD, GOOD[1:], ["data.objective.length=2"],
         "held out: all words have the tag 'B-x', so its scores are not informative"),
        (GOOD, GOOD, ["data.objective.class_weights=1,2"], "one for each of model.labels, which are O, B-x, I-x"),
    ],
)  # fmt: skip
def test_errors_are_reported(untrained, tmp_path, capsys, train, heldout, words, message):
    command = [
        *split_words(f"finetune --from {untrained} --train"),
        write_columns(tmp_path / "train.conll", train),
    ]
    command += [] if "--task" in words else ["--task", "tagging"]
    assert (
        main(
            [
                *command,
                "--heldout",
                write_columns(tmp_path / "dev.conll", heldout),
                *split_words(f"--workdir {tmp_path / 'w'}"),
                *words,
            ]
        )
        == 2
    )
    assert message in capsys.readouterr().err


def test_files_of_any_name_are_read_as_conll(untrained, tuned, tmp_path, capsys):
    """Such as CoNLL's own eng.train and eng.testa."""
    train = write_columns(tmp_path / "eng.train", make_sentences(40, 0))
    heldout = write_columns(tmp_path / "eng.testa", make_sentences(20, 1))
    command = ["finetune", "--from", str(untrained), "--task", "tagging", "--train", train]
    command += ["--heldout", heldout, "--workdir", str(tmp_path / "run")]
    assert main([*command, *FAST, "train.steps=1"]) == 2
    assert "--as conll reads any file as .conll (--as: conll, jsonl)" in capsys.readouterr().err
    assert main([*command, "--as", "conll", *FAST, "train.steps=1"]) == 0
    assert Workdir.open(tmp_path / "run").run.model.scheme == "bio"
    capsys.readouterr()
    workdir = str(tmp_path / "run")
    argv = ["evaluate", "--workdir", workdir, "--labelled", heldout, "--json"]
    assert main(argv) == 2
    assert main([*argv, "--as", "conll"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 20
    argv = ["predict", "--workdir", workdir, "--input", heldout, "--json", "--as", "conll"]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20 and "given_tags" in json.loads(lines[0])
