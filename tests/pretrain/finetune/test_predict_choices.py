"""From a pretrained workdir and multiple-choice questions to a model that chooses, on the command
line.
"""

import json

import numpy as np
import pytest

from pretrain.__main__ import main
from pretrain.workdir import metrics_file
from pretrain.workdir.workdir import Workdir
from tests.command import split_words
from tests.pretrain.workdirs import write_json_lines

WORDS = "the a fox dog river stone runs sees near old".split()
FAST = [
    "data.batch_size=32",
    "optimizer.learning_rate=3e-3",
    "data.objective.length=14",
    "data.threads=1",
]


def make_questions(count, seed):
    """The right ending of three is the one that mentions a fox."""
    rng, found = np.random.default_rng(seed), []
    others = [word for word in WORDS if word != "fox"]
    for _ in range(count):
        endings = [rng.choice(others, 2).tolist() for _ in range(3)]
        label = int(rng.integers(3))
        endings[label][int(rng.integers(2))] = "fox"
        ending_texts = {f"ending{i}": " ".join(ending) for i, ending in enumerate(endings)}
        found.append(
            {
                "sent1": " ".join(rng.choice(WORDS, 3)),
                "sent2": "the",
                **ending_texts,
                "label": label,
            }
        )
    return found


@pytest.fixture(scope="module")
def tuned(untrained, tmp_path_factory):
    """Return (workdir, held-out file)."""
    folder = tmp_path_factory.mktemp("tuned")
    files = (
        write_json_lines(folder / "train.jsonl", make_questions(192, 0)),
        write_json_lines(folder / "dev.jsonl", make_questions(64, 1)),
    )
    command = split_words(
        f"finetune --from {untrained} --task multiple_choice --train {files[0]}",
        f"--heldout {files[1]}",
    )
    assert main([*command, "--workdir", str(folder / "w"), "--epochs", "2", *FAST]) == 0
    return folder / "w", files[1]


def test_it_learns_and_predicts(tuned, tmp_path, capsys):
    workdir, dev = tuned
    run = Workdir.open(workdir).run
    assert run.data.objective.choices == 3 and run.checkpoint.best == "accuracy"
    scored = [
        row["heldout_accuracy"]
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
        if "heldout_accuracy" in row
    ]
    assert len(scored) == 2 and max(scored) > 0.8
    assert main(["evaluate", "--workdir", str(workdir), "--labelled", dev, "--json"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated["rows"] == 64 and evaluated["accuracy"] == scored[-1] == pytest.approx(
        evaluated["multiple_choice_accuracy"]
    )
    output = tmp_path / "told.jsonl"
    assert (
        main(["predict", "--workdir", str(workdir), "--input", dev, "--output", str(output)]) == 0
    )
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert (
        np.mean([result["number"] == result["label"] for result in results])
        == evaluated["accuracy"]
    )
    for result in results:
        assert result["choice"] == result[f"ending{result['number']}"]
        assert result["probability"] == max(result["probabilities"]) and sum(
            result["probabilities"]
        ) == pytest.approx(1, abs=1e-5)
    # Another format, and another number of choices.
    capsys.readouterr()
    other = {"context": "a river", "question": "the", "choices": ["old dog", "fox runs"]}
    assert (
        main(
            [
                *split_words(f"predict --workdir {workdir} --input"),
                write_json_lines(tmp_path / "a.jsonl", [other]),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out.splitlines()
    assert (
        shown[0] == "a river"
        and shown[1].endswith("%  fox runs")
        and shown[2].endswith("%  old dog")
    )


GOOD = make_questions(8, 2)


@pytest.mark.parametrize(
    ("train", "heldout", "words", "message"),
    [
        ([*GOOD, {**GOOD[0], "label": 3}], GOOD, [],
         "train.jsonl:9: 'label' is 3; the number of the right choice is expected, from 0 to 2"),
        (GOOD, [{**GOOD[0], "ending3": "a"}], [], "dev.jsonl:1: 4 choices; 3 are expected"),
        ([{**GOOD[0], "ending1": " "}], GOOD, [], "train.jsonl:1: 'ending1' is empty"),
        ([{"sent1": "a", "label": 0}], GOOD, [], "train.jsonl:1: expected sent1, sent2, ending0"),
        ([{"context": "a", "choices": ["b"], "label": 0}], GOOD, [], "train.jsonl:1: there is 1 choice"),
        ([{**GOOD[0], "label": 1}] * 3, GOOD, [], "train.jsonl: the correct choice of all 3 questions is number 1"),
        (GOOD, [], [], "dev.jsonl: no questions in it"),
        (GOOD, GOOD, ["--labels", "a,b"], "--columns and --labels are not for multiple_choice"),
        (GOOD, GOOD[:1], ["data.objective.choices=4"], "its questions have 3 choices; data.objective.choices=4"),
    ],
)  # fmt: skip
def test_errors_are_reported(untrained, tmp_path, capsys, train, heldout, words, message):
    command = [
        *split_words(f"finetune --from {untrained} --task multiple_choice --train"),
        write_json_lines(tmp_path / "train.jsonl", train),
    ]
    assert (
        main(
            [
                *command,
                "--heldout",
                write_json_lines(tmp_path / "dev.jsonl", heldout),
                *split_words(f"--workdir {tmp_path / 'w'}"),
                *words,
            ]
        )
        == 2
    )
    assert message in capsys.readouterr().err
