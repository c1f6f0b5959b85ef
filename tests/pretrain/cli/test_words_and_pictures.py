"""The verbs on captions and pictures: from a folder to filled captions and pictures, and errors."""

import json
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

from models import build
from pretrain.__main__ import main
from pretrain.inference.images.captioned_pairs import Pair, PairFiller
from pretrain.workdir.trained import open_trained
from tests.captioned_images import TINY_MODEL, write_captioned_images

MODEL = [
    *(f"model.{key}={value}" for key, value in TINY_MODEL.items()),
    *("model.length=32", "data.objective.length=28", "data.objective.max_predictions=16"),
    *("model.vocab=64", "data.batch_size=16", "train.steps=4", "evaluate.every=4"),
    *("checkpoint.every=4", "optimizer.warmup_steps=1", "optimizer.learning_rate=0.01"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("captioned")
    write_captioned_images(root / "pairs", count=80)
    options = ["--size", "16", "--patch", "4", "--clusters", "24", "--held-out", "0.2"]
    store = str(root / "store")
    assert main(["prepare-captions", str(root / "pairs"), "--output", store, *options]) == 0
    words = ["train", "words_and_pictures", "--workdir", str(root / "run"), f"data.store={store}"]
    assert main([*words, *MODEL]) == 0
    return root


def predict(root, capsys, record, *options):
    capsys.readouterr()
    words = ["predict", "--workdir", str(root / "run"), json.dumps(record), *options]
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.mark.more
def test_captions_of_a_file_are_filled_from_their_pictures(root, capsys):
    """Whether the words are right is measured by benchmarks/papers/words_and_pictures.py."""
    records = []
    for line in (root / "pairs" / "captions.jsonl").read_text().splitlines()[:5]:
        record = json.loads(line)
        where = "top" if "top" in record["caption"] else "bottom"
        image = str(root / "pairs" / record["image"])
        records.append({"caption": record["caption"].replace(where, "[MASK]"), "image": image})
    (root / "masked.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    capsys.readouterr()
    words = ["predict", "--workdir", str(root / "run"), "--input", str(root / "masked.jsonl")]
    assert main([*words, "--json", "--top", "2", "--batch-size", "2"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(results) == 5
    for record, result in zip(records, results):
        (answers,) = result["masks"]
        assert len(answers) == 2 and result["image"] == record["image"]
        assert result["filled"] == record["caption"].replace("[MASK]", answers[0]["word"])
    shown = predict(root, capsys, records[0], "--top", "1").splitlines()
    assert shown[0] == records[0]["caption"] and shown[-2].strip() == results[0]["filled"]


def test_a_picture_is_filled_from_its_caption(root, capsys):
    output = str(root / "filled.png")
    record = {"caption": "A disk, at the top.", "output": output}
    result = json.loads(predict(root, capsys, record, "--json"))
    with Image.open(output) as image:
        pixels = np.asarray(image)
    assert result["picture"] == output and len(result["visual_tokens"]) == 16
    codebook = open_trained(root / "run").encoding.codebook
    assert np.array_equal(codebook.decode(np.array(result["visual_tokens"]))[..., 0], pixels)
    assert predict(root, capsys, record) == f"{record['caption']}\n  {output}\n\n"


def test_predictions_are_those_of_the_model_on_rows_of_two_segments(root):
    trained = open_trained(root / "run")
    filler, vocabulary = PairFiller(trained, 3, 4), trained.encoding
    image = str(root / "pairs" / "000.png")
    pixels = np.asarray(Image.open(image))[None, ..., None]
    words = vocabulary.encode("a disk, at the")
    ids = [vocabulary.cls, *words, vocabulary.mask, vocabulary.sep]
    row = np.array([[*ids, *vocabulary.encode_pixels(pixels)[0], vocabulary.sep]])
    types = np.array([[0] * len(ids) + [1] * 17])
    logits, _ = build(trained.run.model).apply(
        {"params": trained.params}, row, np.ones_like(row, bool), types, np.array([[len(ids) - 2]])
    )
    expected = np.asarray(jax.nn.softmax(logits[0, 0]))[: vocabulary.first_patch]
    (result,) = filler([Pair("a disk, at the [MASK]", image, "")], [None])
    best = np.argsort(-expected)[:3]
    assert [answer["id"] for answer in result["masks"][0]] == best.tolist()
    found = [answer["probability"] for answer in result["masks"][0]]
    assert found == pytest.approx(expected[best], abs=1e-5)


def test_each_round_fixes_what_is_most_certain(root):
    """In one round, each visual token is the likeliest; in as many as tokens, one is fixed each."""
    filler = PairFiller(open_trained(root / "run"), 1, 4)
    row = filler.make_row(Pair("a square, at the top.", "", "x.png"), "")
    masks = filler.find_masks(row)
    assert len(masks) == 16
    first, size = filler.visual.first_patch, filler.vocabulary.size
    score = lambda row, places: filler.score_masks([row], [places], 1, first, size)[0]  # noqa: E731
    once = [found[0][1] - first for found in score(row, masks)]
    assert filler.predict_patches([row], rounds=1)[0].tolist() == once
    one_by_one = row.copy()
    for left in range(16, 0, -1):
        places = [place for place in masks if one_by_one[place] == filler.vocabulary.mask]
        assert len(places) == left
        answers = [found[0] for found in score(one_by_one, places)]
        best = max(range(left), key=lambda i: (answers[i][0], places[i]))
        one_by_one[places[best]] = answers[best][1]
    expected = [one_by_one[place] - first for place in masks]
    assert filler.predict_patches([row], rounds=16)[0].tolist() == expected


def test_a_run_is_evaluated_and_exported(root, capsys):
    capsys.readouterr()
    assert main(["evaluate", "--workdir", str(root / "run"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert 0 < scores["masked_lm_accuracy"] < 1 and 0 <= scores["next_sentence_accuracy"] <= 1
    assert main(["export", "--workdir", str(root / "run"), "--output", str(root / "hf")]) == 0
    assert "[patch23]" in (root / "hf" / "vocab.txt").read_text().split()
    card = (root / "hf" / "README.md").read_text()
    assert "masked words and visual tokens" in card


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"caption": "a [MASK]"}, "name either `image`"),
        ({"caption": "a", "image": "{image}", "output": "{new}.png"}, "name either `image`"),
        ({"image": "{image}"}, "caption is not empty"),
        ({"caption": "a disk", "image": "{image}"}, "there is no [MASK] in 'a disk'"),
        ({"caption": "a [MASK]", "image": "nothing.png"}, "nothing.png: no such image"),
        ({"caption": "a [MASK]", "image": "{text}"}, "in none of the formats"),
        ({"caption": "a disk", "output": "{new}/a.png"}, "its folder exists"),
        ({"caption": "a disk", "output": "{new}.jpg"}, "its name ends in .png"),
        ({"caption": "a " * 40, "output": "{new}.png"}, "the model reads at most 32"),
        ({"caption": 3, "output": "{new}.png"}, "are texts"),
        ("no object", "not JSON"),
    ],
)
def test_bad_records_are_one_clear_error(root, tmp_path, capsys, record, message):
    (tmp_path / "text").write_text("A text.\n")
    places = {"image": root / "pairs" / "000.png", "text": tmp_path / "text"}
    text = record if isinstance(record, str) else json.dumps(record)
    for name, path in {**places, "new": tmp_path / "new"}.items():
        text = text.replace(f"{{{name}}}", str(path))
    assert main(["predict", "--workdir", str(root / "run"), text]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_bad_commands_are_one_clear_error(root, tmp_path, capsys):
    shutil.copytree(root / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "codebook")
    record = json.dumps({"caption": "a disk", "output": str(tmp_path / "a.png")})
    for words, message in (
        (["predict", "--workdir", str(tmp_path / "run"), record], "it has no folder `codebook`"),
        (["prepare-captions", str(tmp_path), "--output", str(tmp_path / "s")], "captions.jsonl"),
        (
            ["prepare-captions", str(tmp_path), "--output", str(tmp_path / "s"), "--patch", "7"],
            "patches of 7 pixels do not fill pictures of 48",
        ),
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error


def test_the_most_certain_patches_are_filled_first(monkeypatch):
    """Four patches in two rounds: the two that are most probable, then the others, which are scored again."""
    grid = SimpleNamespace(num_patches=4)
    filler = object.__new__(PairFiller)
    filler.visual = SimpleNamespace(first_patch=10, codebook=SimpleNamespace(grid=grid))
    filler.vocabulary = SimpleNamespace(mask=4, size=20)
    asked = []

    def score_masks(rows, masks, count, first, end):
        asked.append([*masks[0]])
        probabilities = {1: 0.3, 2: 0.9, 3: 0.2, 4: 0.5}
        return [[[(probabilities[place], 9 + place + len(asked))] for place in masks[0]]]

    monkeypatch.setattr(filler, "score_masks", score_masks, raising=False)
    assert filler.predict_patches([[2, 4, 4, 4, 4, 3]], rounds=2)[0].tolist() == [2, 2, 4, 4]
    assert asked == [[1, 2, 3, 4], [1, 3]]
