"""A T5 generates the entities of a sentence: trained, scored and predicted as by a tagger, from the
same files.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from data.examples.tag_schemes import find_entities
from data.objectives import Text2Text
from data.vocabulary.load import train_vocabulary
from models.config.t5 import T5Config
from pretrain.__main__ import main
from pretrain.evaluation.generated_answers import score_generated_texts
from pretrain.evaluation.task_metrics import check_run_metrics
from pretrain.finetune.tasks import TASKS
from pretrain.finetune.text2text_task import convert_to_text
from pretrain.publish.cards.model_card import make_card
from pretrain.settings.overrides import ConfigError
from pretrain.training.fits.label_checks import read_pairs
from pretrain.workdir import metrics_file
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir
from tests.command import split_words
from tests.pretrain.workdirs import start_untrained

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


def make_sentences(count, seed):
    """Return [(words, tags)]: a name is a person; one in four sentences has none."""
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        words = list(map(str, rng.choice(WORDS, 2 + int(rng.integers(4)))))
        tags = ["O"] * len(words)
        if number % 4:
            at = int(rng.integers(len(words)))
            words[at], tags[at] = str(rng.choice(NAMES)), "B-person"
        found.append((words, tags))
    return found


def write_columns(path, rows):
    path.write_text(
        "\n".join("".join(f"{word}\t{tag}\n" for word, tag in zip(*row)) for row in rows)
    )
    return str(path)


@pytest.fixture(scope="module")
def vocabulary():
    texts = [" ".join(words) for words, _ in make_sentences(200, 0)]
    return train_vocabulary(
        [f"tagging sentence: {text} person: none" for text in texts],
        230,
        layout="t5",
        algorithm="bpe",
    )


def read_task(file, scheme=None, columns=None):
    return TASKS["tagging"].read_examples(
        SimpleNamespace(
            columns=columns,
            labels=None,
            scheme=scheme,
            on_bad_example="refuse",
            file_format=None,
        ),
        file,
        file,
        0.5,
    )


@pytest.mark.more
def test_it_learns_and_predicts(vocabulary, tmp_path, capsys):
    start_untrained(tmp_path / "t5", T5, vocabulary)
    rows = make_sentences(32, 2)
    files = (
        write_columns(tmp_path / "train.conll", make_sentences(96, 1)),
        write_columns(tmp_path / "dev.conll", rows),
    )
    command = split_words(
        f"finetune --from {tmp_path / 't5'} --task tagging --train {files[0]}",
        f"--heldout {files[1]}",
    )
    assert (
        main(
            [
                *command,
                *split_words(
                    f"--workdir {tmp_path / 'w'} train.steps=30 evaluate.every=30 checkpoint.every=30"
                ),
                *FAST,
            ]
        )
        == 0
    )
    run = Workdir.open(tmp_path / "w").run
    assert (
        run.evaluate.metrics == ("entity_f1", "entity_precision", "entity_recall", "tag_accuracy")
        and run.checkpoint.best == "entity_f1"
    )
    scored = metrics_file.read_metrics(tmp_path / "w" / "metrics.jsonl")[-1]
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"words": words}) + "\n" for words, _ in rows))
    assert (
        main(
            split_words(
                f"predict --workdir {tmp_path / 'w'} --input {texts}",
                f"--output {tmp_path / 'told.jsonl'}",
            )
        )
        == 0
    )
    results = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    hits = sum(
        len(
            {(one["type"], one["start"], one["end"]) for one in result["entities"]}
            & set(find_entities(tags))
        )
        for result, (_, tags) in zip(results, rows)
    )
    assert scored["heldout_entity_recall"] == pytest.approx(hits / 24) and hits > 5
    pairs = [
        (one, other)
        for result, (_, tags) in zip(results, rows)
        for one, other in zip(result["tags"], tags, strict=True)
    ]
    assert scored["heldout_tag_accuracy"] == pytest.approx(
        np.mean([one == other for one, other in pairs])
    )
    assert all(
        one["text"] == " ".join(words[one["start"] : one["end"]])
        for result, (words, _) in zip(results, rows)
        for one in result["entities"]
    )
    capsys.readouterr()
    assert (
        main(["evaluate", "--workdir", str(tmp_path / "w"), "--labelled", files[1], "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert {name: found[name] for name in run.evaluate.metrics} == {
        name: scored[f"heldout_{name}"] for name in run.evaluate.metrics
    }
    card = make_card(open_trained(tmp_path / "w"))
    assert "`tagging sentence: It is a text.`" in card and "`person: ...`, or `none`" in card


def test_inputs_and_targets_have_the_documented_form(vocabulary, tmp_path):
    rows = [(["the", "anna", "ben"], ["O", "I-person", "I-person"]), (["the", "river"], ["O", "O"])]
    file = write_columns(tmp_path / "a.conll", rows)
    found = convert_to_text("tagging", read_task(file), SimpleNamespace(vocabulary=vocabulary))
    assert [pair[:2] for pair in found.parts["train"]] == [
        ("tagging sentence: the anna ben", "person: anna ben"),
        ("tagging sentence: the river", "none"),
    ]
    assert found.metrics == ("entity_f1", "entity_precision", "entity_recall", "tag_accuracy")
    assert found.spec.scheme == "iob1" and found.spec.kinds == ("person",)
    assert found.spec.target_length == 1 + len(vocabulary.encode("person: anna ben"))
    assert read_pairs(found.spec, file) == found.parts["heldout"]
    odd = tmp_path / "b.jsonl"
    odd.write_text(
        json.dumps({"pieces": ["anna"], "kinds": ["I-person"]})
        + "\n"
        + json.dumps({"pieces": ["a"], "kinds": ["O"]})
        + "\n"
    )
    named = convert_to_text(
        "tagging",
        read_task(str(odd), columns="pieces,kinds"),
        SimpleNamespace(vocabulary=vocabulary),
    ).spec
    assert read_pairs(named, str(odd))[0].target == "person: anna"
    other = write_columns(tmp_path / "c.conll", [(["the", "anna"], ["O", "I-place"])])
    with pytest.raises(ValueError, match=r"c.conll:2: the tag 'I-place': expected one of 'person'"):
        read_pairs(found.spec, other)


def test_scores_by_hand(vocabulary):
    """Of three entities one is generated correctly, one too short, one twice; a fourth, not in the
    sentence, is generated twice.
    """
    spec = Text2Text(
        columns=("words", "tags"), names=("sentence",), scheme="bio", kinds=("person",)
    )
    answers = [
        {
            "words": ["anna", "the", "ben", "carla"],
            "tags": ["B-person", "O", "B-person", "I-person"],
        },
        {"words": ["dora", "runs"], "tags": ["B-person", "O"]},
        {"words": ["the"], "tags": ["O"]},
    ]
    texts = ["person: anna person: ben", "person: dora person: dora", "person: ben person: ben"]
    names = ("entity_f1", "entity_precision", "entity_recall", "tag_accuracy")
    found = score_generated_texts(spec, vocabulary, names, texts, answers)
    assert found == pytest.approx(
        {
            "entity_f1": 4 / 9,
            "entity_precision": 2 / 6,
            "entity_recall": 2 / 3,
            "tag_accuracy": 6 / 7,
        }
    )
    with pytest.raises(
        ConfigError,
        match="unread_words is a metric of tagging; the metrics of generated tags are entity_f1, entity_precision, entity_recall, tag_accuracy",
    ):
        check_run_metrics(("unread_words",), spec, T5)
