"""`features` writes the hidden states of each text, word or token, in the form that docs/inside.md
describes.
"""

import dataclasses
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open

from data.vocabulary.load import train_vocabulary
from models import build
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from models.config.gpt2 import Gpt2Config
from models.config.xlnet import XLNetConfig
from pretrain.__main__ import main
from pretrain.config import Mesh
from pretrain.inference.hidden_states import COMBINATIONS, extract_features
from pretrain.inference.word_alignment import WordAligner
from pretrain.mesh.sharding import format_path, make_mesh, make_param_sharding
from pretrain.training.new_workdir import start_workdir
from tests.command import split_words
from tests.pretrain.workdirs import make_trained

TEXT = [
    "The quick brown fox jumps over the lazy dog. The fox and the fox.",
    "A cloze is a test in which words are left out of a text, and the reader fills the gaps.",
    "Whoever reads the words before a gap and behind it can often tell what stood there.",
] * 8
BERT = BertConfig(vocab=128, length=40, width=16, depth=4, num_heads=2, mlp=24)
TEXTS = [("in:1", "The fox reads."), ("in:3", "a  \u200b\tbrowner  dog"), ("in:4", "the fox " * 30)]


def make_tiny(config, **vocabulary):
    return make_trained(config, train_vocabulary(TEXT, 110, algorithm="bpe", **vocabulary))


@pytest.fixture(scope="module")
def bert():
    return make_tiny(BERT)


def make_one_device_mesh():
    return make_mesh(Mesh(data=1), jax.devices()[:1])


def extract_states(trained, layers=("last",), pooling="mean", mesh=None, texts=TEXTS):
    mesh = mesh or make_one_device_mesh()
    with jax.set_mesh(mesh):
        return extract_features(trained, mesh, texts, layers, pooling, batch_size=2)


@pytest.fixture(scope="module")
def pieces(bert):
    """Every layer of every token is compared."""
    return extract_states(bert, ["all"], "none").arrays


def test_pieces_are_those_of_the_model(bert, pieces):
    rows = WordAligner(bert)(TEXTS)
    assert (
        [len(row.ids) for row in rows] == np.diff(pieces["offsets"]).tolist()
        and rows[2].is_cut
        and len(rows[2].ids) == 40
    )
    model = build(BERT)
    for row, begin, end in zip(rows[:2], pieces["offsets"], pieces["offsets"][1:]):
        ids = jnp.asarray([row.ids], jnp.int32)
        expected, _ = model.apply({"params": bert.params}, ids, ids >= 0, method="encode")
        np.testing.assert_allclose(pieces["layer_4"][begin:end], expected[0], atol=1e-4)
        np.testing.assert_array_equal(pieces["ids"][begin:end], row.ids)
        written = [""] * len(row.words)
        for w, span in zip(
            pieces["word"][begin + 1 : end - 1], pieces["spans"][begin + 1 : end - 1]
        ):
            written[w] += row.text[slice(*span)]
        assert written == [word.replace("\u200b", "") for word in row.text.split()]
        assert (
            pieces["word"][begin] == pieces["word"][end - 1] == -1
            and not pieces["spans"][begin].any()
        )
    assert pieces["line"].tolist() == [1, 3, 4] and pieces["cut"].tolist() == [False, False, True]


def test_combinations_are_table_7s(bert, pieces, spied):
    states = [pieces[f"layer_{i}"] for i in range(5)]
    expected = {
        "embeddings": states[0],
        "second_to_last": states[3],
        "last": states[4],
        "sum_last_four": states[1] + states[2] + states[3] + states[4],
        "concat_last_four": np.concatenate(states[1:], axis=1),
        "sum_all": states[1] + states[2] + states[3] + states[4],
    }
    made = spied(np, "full")
    found = extract_states(bert, [*COMBINATIONS], "none").arrays
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5, err_msg=name)
    whole = [call.args[0] for call in made.call_args_list if np.isnan(call.args[1])]
    assert whole == [
        found[name].shape for name in expected
    ]  # each text once: the result holds all texts, and there are two batches


def test_poolings_are_means_of_pieces(bert, pieces):
    """A mesh of eight devices that shards rows, parameters and heads gives the same result as one
    device.
    """
    mesh = make_mesh(Mesh(2, 2, 2))
    placed = jax.tree_util.tree_map_with_path(
        lambda keys, leaf: jax.device_put(
            leaf, make_param_sharding(format_path(keys), leaf.shape, mesh)
        ),
        bert.params,
    )
    split = dataclasses.replace(bert, params=placed)
    x, word, offsets = pieces["layer_4"], pieces["word"], pieces["offsets"]
    texts = list(itertools.pairwise(offsets))
    means = [x[begin:end][word[begin:end] >= 0].mean(axis=0) for begin, end in texts]
    np.testing.assert_allclose(extract_states(split, mesh=mesh).arrays["last"], means, atol=1e-5)
    every = [x[begin:end].mean(axis=0) for begin, end in texts]  # [CLS] and [SEP] count, too
    np.testing.assert_allclose(
        extract_states(split, pooling="mean_all", mesh=mesh).arrays["last"], every, atol=1e-5
    )
    np.testing.assert_allclose(
        extract_states(split, pooling="cls", mesh=mesh).arrays["last"], x[offsets[:-1]], atol=1e-5
    )
    found = {
        pooling: extract_states(split, pooling=pooling, mesh=mesh)
        for pooling in ("word", "word_mean")
    }
    spans, at = found["word"].arrays["spans"], found["word"].arrays["offsets"]
    for n, (_, text) in enumerate(TEXTS):
        words = [text[slice(*span)] for span in spans[at[n] : at[n + 1]]]
        assert words == (text.split() if n < 2 else text.split()[: len(words)]) and (n < 2) == (
            len(words) == len(text.split())
        )
        for w in range(len(words)):
            rows = x[texts[n][0] : texts[n][1]][word[texts[n][0] : texts[n][1]] == w]
            for pooling, expected in (("word", rows[:1]), ("word_mean", rows)):
                expected = expected.mean(axis=0) if len(rows) else np.full(16, np.nan)
                np.testing.assert_allclose(
                    found[pooling].arrays["last"][at[n] + w], expected, atol=1e-5
                )
    nothing = np.isnan(found["word"].arrays["last"]).all(axis=1)
    assert found["word"].num_empty == nothing.sum() == 1 and "\u200b" in [
        TEXTS[1][1][slice(*span)] for span in spans[nothing]
    ]


# ---- the verb ----------------------------------------------------------------


@pytest.fixture(scope="module")
def workdir(bert, tmp_path_factory):
    path = tmp_path_factory.mktemp("features") / "w"
    start_workdir(path, bert.run, bert.params, bert.vocabulary)
    return path


def test_both_files_hold_the_same(workdir, tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": text, "id": 1}) + "\n\n" for _, text in TEXTS)
    )
    say = split_words(
        f"features --workdir {workdir} --input {tmp_path / 'in.jsonl'} --layers last,-5",
        "--pooling word --output",
    )
    assert main([*say, str(tmp_path / "f.npz")]) == 0
    output = capsys.readouterr().out
    assert (
        "3 texts, step 0" in output
        and "1 texts are longer than the model's 40 tokens and were truncated, the first at"
        in output
        and "in.jsonl:5" in output
    )
    assert main([*say, str(tmp_path / "f.safetensors")]) == 0
    with (
        np.load(tmp_path / "f.npz") as arrays,
        safe_open(tmp_path / "f.safetensors", "np") as tensors,
    ):
        assert (
            set(arrays)
            == {"last", "layer_0", "line", "cut", "offsets", "spans", "about"}
            == {*tensors.keys(), "about"}
        )
        for key in tensors.keys():  # noqa: SIM118 - it has keys, but no __iter__
            np.testing.assert_array_equal(arrays[key], tensors.get_tensor(key))
        about = json.loads(str(arrays["about"]))
        assert (
            arrays["line"].tolist() == [1, 3, 5]
            and about["pooling"] == "word"
            and about["step"] == 0
        )
        assert about | {"output": None} == json.loads(tensors.metadata()["about"]) | {
            "output": None
        }
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "f.npz",
        "f.safetensors",
        "in.jsonl",
    ]
    assert main([*say, str(tmp_path / "f.npz")]) == 2
    assert "f.npz exists; name another --output, or add --overwrite" in capsys.readouterr().err


def test_a_fine_tuned_models_features_are_those_of_its_encoder(bert, pieces, tmp_path, capsys):
    tuned = make_tiny(ClassifierConfig(encoder=BERT))
    params = tuned.params | {
        "encoder": {name: bert.params[name] for name in tuned.params["encoder"]}
    }
    start_workdir(tmp_path / "w", tuned.run, params, bert.vocabulary)
    (tmp_path / "in.txt").write_text(TEXTS[0][1] + "\n")
    say = split_words(
        f"features --workdir {tmp_path / 'w'} --input {tmp_path / 'in.txt'} --pooling none",
        f"--output {tmp_path / 'f.npz'}",
    )
    assert main(say) == 0
    with np.load(tmp_path / "f.npz") as arrays:
        np.testing.assert_allclose(
            arrays["last"], pieces["layer_4"][: len(arrays["ids"])], atol=1e-5
        )
        assert json.loads(str(arrays["about"]))["model"] == "ClassifierConfig"
    assert (
        main([*say, "--overwrite", "--layers", "5"]) == 2
        and "--layers 5: there are embeddings" in capsys.readouterr().err
    )


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("\n \n", (), "in.txt: no text in it"),
        ("the fox\n\u200b\n", (), "in.txt:2: there is no word in"),
        ('{"text": "a"}\n\n{"text": 3}\n', (), "in.jsonl:3: expected an object with the field text, a string"),
        ('{"txt": "a"}\n', (), "in.jsonl:1: expected an object with the field text, a string"),
        ('{"text": "a \\ud83d"}\n', (), "in.jsonl:1: the field text has half of a character in it, '\\ud83d'"),
        ("the fox\n", ("--layers", "5"),
         "--layers 5: there are embeddings, second_to_last, last, sum_last_four, concat_last_four, sum_all, all, and 0"),
        ("the fox\n", ("--layers", "first"), "--layers first: there are embeddings"),
        ("the fox\n", ("--layers", "²"), "--layers ²: there are embeddings"),
        ("the fox\n", ("--layers", ","), "--layers names no layer: there are embeddings"),
        ("the fox\n", ("--output", "f.txt"), "--output f.txt: the name must end in .npz or .safetensors"),
        ("the fox\n", ("--output", "none/f.npz"), "none: the folder of --output does not exist"),
        ("the fox\n", ("--batch-size", "0"), "--batch-size 0: must be at least 1"),
    ],
)  # fmt: skip
def test_bad_input_is_reported_and_nothing_is_written(
    workdir, tmp_path, capsys, content, words, message
):
    path = tmp_path / ("in.jsonl" if content.startswith("{") else "in.txt")
    path.write_text(content)
    assert (
        main(
            [
                *split_words(
                    f"features --workdir {workdir} --input {path} --output {tmp_path / 'f.npz'}"
                ),
                *words,
            ]
        )
        == 2
    )
    assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [path]


def test_the_cls_of_xlnet_is_its_last_piece():
    trained = make_tiny(XLNetConfig(vocab=128, width=16, depth=2, num_heads=2, mlp=24))
    pieces, found = (extract_states(trained, pooling=name).arrays for name in ("none", "cls"))
    last = pieces["offsets"][1:] - 1
    assert (pieces["ids"][last] == trained.vocabulary.cls).all()
    np.testing.assert_allclose(found["last"], pieces["last"][last], atol=1e-5)


def test_states_that_are_no_numbers_are_refused(bert):
    """NaN marks the words without a token."""
    params = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), bert.params)
    with pytest.raises(ValueError, match="^.*:1: a hidden state is not a number.*another --step"):
        extract_states(dataclasses.replace(bert, params=params))


def test_unsupported_layers_and_poolings_are_refused():
    gpt2 = make_tiny(
        Gpt2Config(vocab=128, length=40, width=16, depth=2, num_heads=2, mlp=24), layout="gpt"
    )
    with pytest.raises(ValueError, match="--pooling cls: a text of Gpt2Config does not begin with"):
        extract_states(gpt2, pooling="cls")
    with pytest.raises(ValueError, match="--layers sum_last_four needs 4 layers; the model has 2"):
        extract_states(gpt2, ["sum_last_four"])
    assert extract_states(gpt2, pooling="word", texts=TEXTS[:1]).arrays["last"].shape == (3, 16)
