"""ELMo by the verbs: words that no vocabulary has keep their characters, from text to labels."""

import json
import pathlib

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import BidirectionalLm, Tagging
from data.vocabulary.word_level import make_word_vocabulary
from models import build
from models.activations import capture_activations
from models.config.elmo import ElmoConfig
from models.config.tagger import TaggerConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer
from pretrain.config import ConfigError, Run, load, validate_run
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import open_trained
from tests import elmo_numpy
from tests.small_store import write_store

MODEL = ElmoConfig(
    vocab=12,
    width=8,
    cells=16,
    characters=9,
    character_width=6,
    character_filters=((1, 12), (2, 12)),
    highways=1,
)
RUN = Run(model=MODEL, data=Data(objective=BidirectionalLm(length=4, characters=9)))
TEXT = ["the old dog sleeps", "a dog barks at the old cat", "cats run"]


@pytest.fixture(scope="module")
def vocabulary():
    return make_word_vocabulary(TEXT)


@pytest.fixture(scope="module")
def workdir(vocabulary, tmp_path_factory):
    """Return the workdir of a pretrained model with random parameters, large enough to differ."""
    random = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: 0.7 * random.standard_normal(leaf.shape, np.float32),
        jax.eval_shape(make_initializer(RUN)),
    )
    workdir = tmp_path_factory.mktemp("elmo") / "w"
    start_workdir(workdir, RUN, params, vocabulary)
    return str(workdir)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Return a file of texts whose label is the last letter of a word that occurs once."""
    path = tmp_path_factory.mktemp("examples") / "texts.jsonl"
    records = [
        {"text": f"the {stem}{end} dog", "label": end}
        for stem in "ab cd ef gh ij kl mn op qr st".split()
        for end in "xy"
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_features_are_three_layers_of_any_words(workdir, tmp_path):
    words = ["<S>", "the", "überdog", "zzz", "</S>"]
    (tmp_path / "in.txt").write_text(" ".join(words[1:-1]))
    arguments = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "f.npz")]
    arguments += ["--layers", "all", "--pooling", "word"]
    assert main(["features", "--workdir", workdir, *arguments]) == 0
    arrays = np.load(tmp_path / "f.npz")
    characters = np.array([[elmo_numpy.spell(word, 9) for word in words]])
    params = open_trained(workdir).params
    mask = np.ones((1, 5), bool)
    seen = capture_activations(build(MODEL), params, characters, mask, method="encode")
    for i, expected in enumerate(seen.hidden_states):
        np.testing.assert_allclose(arrays[f"layer_{i}"], expected[0, 1:-1], atol=1e-5)
    assert np.abs(arrays["layer_2"][1] - arrays["layer_2"][2]).max() > 1e-2


@pytest.mark.more
def test_a_label_is_learned_from_the_characters_of_unknown_words(
    workdir, examples, tmp_path, capsys
):
    """Words of training and of prediction are in no vocabulary of the pretrained model. The mix is
    learned, and all else of the encoder stays bit for bit.
    """
    labels = str(tmp_path / "labels")
    heldout = tmp_path / "heldout.jsonl"  # the same examples: another file has to hold them
    lines = pathlib.Path(examples).read_text().splitlines()
    heldout.write_text("\n".join(reversed(lines)))
    words = ["--task", "classification", "--train", examples, "--heldout", str(heldout)]
    settings = ["optimizer.learning_rate=0.03", "data.batch_size=8", "model.dropout=0"]
    settings += ["model.encoder.dropout=0", "data.objective.length=8", "evaluate.every=60"]
    settings += ["checkpoint.every=60", "train.steps=60"]
    assert main(["finetune", "--from", workdir, "--workdir", labels, *words, *settings]) == 0
    before, tuned = open_trained(workdir), open_trained(labels)
    assert tuned.run.model.encoder.frozen and tuned.run.data.objective.characters == 9
    assert tuned.vocabulary.size == 4 + 22  # the words of these texts
    for part in ("words", "bilm"):
        assert jax.tree.all(
            jax.tree.map(np.array_equal, before.params[part], tuned.params["encoder"][part])
        )
    for name, leaf in tuned.params["encoder"]["mix"].items():
        assert np.abs(leaf - before.params["mix"][name]).max() > 1e-3
    capsys.readouterr()
    assert main(["evaluate", "--workdir", labels, "--labelled", examples, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text('{"text": "the uvx dog"}\n{"text": "the uvy dog"}\n')
    output = tmp_path / "predicted.jsonl"
    arguments = ["--input", str(unseen), "--output", str(output)]
    assert main(["predict", "--workdir", labels, *arguments]) == 0
    x, y = (
        np.log(json.loads(line)["probabilities"]["x"]) for line in output.read_text().splitlines()
    )
    assert abs(x - y) > 0.1


def test_tags_of_unknown_words_are_those_of_the_model(tmp_path):
    """Of sentences of two lengths, with random parameters."""
    model = TaggerConfig(encoder=MODEL.as_encoder(), labels=("O", "B-A", "I-A", "B-B", "I-B"))
    run = Run(model=model, data=Data(objective=Tagging(length=16, characters=9)))
    random = np.random.default_rng(1)
    params = jax.tree.map(
        lambda leaf: random.standard_normal(leaf.shape, np.float32),
        jax.eval_shape(make_initializer(run)),
    )
    start_workdir(tmp_path / "w", run, params, make_word_vocabulary(TEXT))
    sentences = [[f"w{i * i}x" for i in range(12)], "an older überdog".split()]
    (tmp_path / "in.txt").write_text("".join(f"{' '.join(words)}\n" for words in sentences))
    arguments = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.jsonl")]
    assert main(["predict", "--workdir", str(tmp_path / "w"), *arguments]) == 0
    found = [json.loads(line)["tags"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for tags, words in zip(found, sentences, strict=True):
        characters = [elmo_numpy.spell(word, 9) for word in ("<S>", *words, "</S>")]
        mask = np.ones((1, len(characters)), bool)
        logits = build(model).apply({"params": params}, np.array([characters]), mask)
        assert tags == [model.labels[i] for i in logits[0, 1:-1].argmax(axis=-1)]
    assert len({*found[0]}) > 1


@pytest.mark.more
def test_text_is_prepared_inspected_trained_and_scored(tmp_path, capsys):
    """The held-out perplexity of each direction falls."""
    text = "\n\n".join(f"the dog {'barks' if i % 3 else 'sleeps'} here {i}" for i in range(300))
    (tmp_path / "text.txt").write_text(text)
    store, workdir = str(tmp_path / "store"), str(tmp_path / "w")
    words = [str(tmp_path / "text.txt"), "--document", "block", "--output", store]
    words += ["--algorithm", "words", "--vocab-size", "1000", "--held-out", "0.1"]
    assert main(["prepare", *words]) == 0
    overrides = [f"data.store={store}", "data.batch_size=8", "data.objective.length=6"]
    overrides += ["data.objective.characters=9", "train.steps=20", "evaluate.every=10"]
    overrides += ["checkpoint.every=20", "model.vocab=12", "model.cells=16", "model.characters=9"]
    overrides += ["optimizer.learning_rate=0.02"]
    capsys.readouterr()
    assert main(["inspect", "elmo_tiny", *overrides]) == 0
    assert "all checks passed" in capsys.readouterr().out
    assert main(["train", "elmo_tiny", "--workdir", workdir, *overrides]) == 0
    capsys.readouterr()
    rows = [
        json.loads(line) for line in (tmp_path / "w" / "metrics.jsonl").read_text().splitlines()
    ]
    for direction in ("forward_lm", "backward_lm"):
        losses = [row[f"heldout_{direction}"] for row in rows if f"heldout_{direction}" in row]
        assert losses[-1] < losses[0] and losses[-1] < 1.5


def test_it_is_exported_as_a_program_alone(workdir, tmp_path, capsys):
    words = ["export", "--workdir", workdir, "--output"]
    assert main([*words, str(tmp_path / "hf")]) == 2
    assert "transformers has no ELMo" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "jax"), "--format", "jax"]) == 0
    assert (tmp_path / "jax" / "program.bin").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["attention", "a", "--output", "a.html"], "a ElmoConfig has no attention. `features` has"),
        (["predict", "a text"], "a ElmoConfig predicts no text: `features` has its states"),
        (
            ["finetune", "--task", "multiple_choice", "--train"],
            "reads words by their characters: it learns labels of texts and tags of words",
        ),
    ],
    ids=("attention", "predict", "another task"),
)
def test_what_it_cannot_do_is_one_error(workdir, tmp_path, capsys, words, message):
    if words[0] == "finetune":
        question = '{"question": "a", "choices": ["b", "c"], "label": %d}\n'
        (tmp_path / "c.jsonl").write_text(question % 0 * 50 + question % 1 * 50)
        file = str(tmp_path / "c.jsonl")
        words = [*words, file, "--heldout", file, "--from", workdir]
        words += ["--workdir", str(tmp_path / "new")]
    else:
        words = [*words, "--workdir", workdir]
    words = [str(tmp_path / word) if word == "a.html" else word for word in words]
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_random_words_do_not_stay_random(workdir, tmp_path, capsys):
    """Of a new model, and of a baseline without pretraining."""
    lines = [json.dumps({"text": text, "label": str(i % 2)}) for i, text in enumerate(TEXT * 20)]
    (tmp_path / "t.jsonl").write_text("".join(line + "\n" for line in lines))
    file = str(tmp_path / "t.jsonl")
    task = ["finetune", "--task", "classification", "--train", file, "--heldout", file]
    task += ["--workdir", str(tmp_path / "c")]
    for start in (["--config", "elmo_tiny"], ["--from", workdir, "--fresh", "all"]):
        assert main([*task, *start]) == 2
        assert "and would stay so: add model.encoder.frozen=false" in capsys.readouterr().err
        assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.characters=30"],
         "data.objective.characters=20: a ElmoConfig reads 30 characters of a word; set " "data.objective.characters=30"),
        (["data.objective=MaskedLm"], "a ElmoConfig is trained by BidirectionalLm, not by MaskedLm"),
        (["model.num_heads=2"], "num_heads"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        validate_run(load("elmo_tiny", overrides))


def test_a_store_of_pieces_is_refused(tmp_path, capsys):
    from data.vocabulary.load import train_vocabulary

    pieces = train_vocabulary(TEXT * 20, 26)
    encoded = pieces.encode_batch(TEXT)
    store = write_store(tmp_path / "s", pieces, [encoded] * 9, heldout=[encoded])
    words = ["train", "elmo_tiny", "--workdir", str(tmp_path / "w"), f"data.store={store.path}"]
    assert main(words) == 2
    assert "reads whole words. Use `prepare --algorithm words`" in capsys.readouterr().err
