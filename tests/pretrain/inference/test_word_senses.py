"""`senses` finds every occurrence of a word, and draws its vectors."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.vocabulary.load import train_vocabulary
from models import build
from models.config.classifier import ClassifierConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_starting_run
from pretrain.convert import tokenizer
from pretrain.host.extras import how_to_install
from pretrain.inference import word_senses
from pretrain.training.new_workdir import start_workdir
from tests.command import split_words
from tests.pretrain.finetune.encoders import TEXT, draw_params, make_encoders

TEXTS = ["A bank, or two banks.", "No such word.", "(Bank) left-bank BANK!"]


def test_a_word_is_found_whatever_surrounds_it():
    spans = [span for text in TEXTS for span in _find_spans(text)]
    offsets = np.cumsum([0, *(len(text.split()) for text in TEXTS)])
    x_RD = np.ones((len(spans), 2))
    x_RD[-1] = np.nan  # the last word has no token
    found = word_senses.find_occurrences(
        "bank", TEXTS, {"spans": np.array(spans), "offsets": offsets}, x_RD
    )
    assert found == [(1, 0, "A bank, or two"), (8, 2, "(Bank) left-bank BANK!")]


def _find_spans(text):
    begin = 0
    for word in text.split():
        begin = text.index(word, begin)
        yield begin, begin + len(word)
        begin += len(word)


def test_pca_finds_the_directions_of_the_data():
    rng = np.random.default_rng(0)
    plane_N2 = rng.normal(size=(40, 2)) * (5.0, 2.0)
    axes_2D = np.linalg.qr(rng.normal(size=(9, 2)))[0].T
    x_ND = plane_N2 @ axes_2D + 1e-3 * rng.normal(size=(40, 9)) + 7
    found_N2, shares = word_senses.project_pca(x_ND.astype(np.float32))
    plane_N2 -= plane_N2.mean(axis=0)
    distances = [
        np.linalg.norm(points[:, None] - points, axis=-1) for points in (found_N2, plane_N2)
    ]
    np.testing.assert_allclose(*distances, atol=2e-2)
    assert shares[0] > shares[1] and shares.sum() == pytest.approx(1, abs=1e-5)
    assert found_N2[:, 0].var() > found_N2[:, 1].var()


def test_tsne_preserves_neighbours_that_pca_does_not():
    """Eight orthogonal groups: any two of their directions project the others onto each other."""
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    group_N = rng.permutation(np.repeat(np.arange(8), np.arange(3, 11)))
    x_ND = (np.eye(8, 12)[group_N] + 0.01 * rng.normal(size=(len(group_N), 12))).astype(np.float32)

    def measure_neighbours(points_N2):
        apart = np.linalg.norm(points_N2[:, None] - points_N2, axis=-1) + np.diag(
            np.full(len(points_N2), np.inf)
        )
        return (group_N[apart.argmin(axis=1)] == group_N).mean()

    points_N2 = word_senses.project_tsne(x_ND)
    assert points_N2.shape == (52, 2) and measure_neighbours(points_N2) == 1 > measure_neighbours(
        word_senses.project_pca(x_ND)[0]
    )


def test_vectors_that_are_all_the_same_are_not_projected():
    """Such as the embeddings of a model without position embeddings; t-SNE would divide by 0."""
    x_ND = np.ones((6, 4), np.float32)
    x_ND[1] += 1e-6  # rounding, of another batch
    with pytest.raises(ValueError, match="all 6 occurrences have the same hidden state.*--layer"):
        word_senses.project_vectors(x_ND)


def test_an_image_may_have_any_labels(tmp_path, spied):
    scatter = spied(pytest.importorskip("matplotlib.axes").Axes, "scatter")
    points = np.random.default_rng(0).normal(size=(4, 2))
    word_senses.draw_points(
        {"PCA": points},
        ["$5", None, "_x", "$5"],
        ["$\\nothing{$", "a", "b", "c"],
        "'$\\no{$'",
        tmp_path / "p.part",
    )
    assert (tmp_path / "p.part").read_bytes().startswith(b"\x89PNG")
    for call, mine in zip(scatter.call_args_list, ([0, 3], [1], [2]), strict=True):
        np.testing.assert_array_equal(call.args[1:], points[mine].T)


def test_no_two_labels_overlap(tmp_path, spied):
    """Of points in a crowd; what finds no room is counted."""
    saved = spied(pytest.importorskip("matplotlib.figure").Figure, "savefig")
    rng, around = np.random.default_rng(0), [f"the words around bank {n}" for n in range(60)]
    points = {"crowd": rng.normal(size=(60, 2)) * 0.1, "wide": rng.normal(size=(60, 2))}
    points["crowd"][0] = 5, 5  # so that the rest is small
    senses = ["river", "money"] * 30
    left_out, missing = word_senses.draw_points(points, senses, around, "bank", tmp_path / "p.png")
    (figure,) = saved.call_args.args[:1]
    shown = 0
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        shown += len(boxes)
        assert not any(
            one.overlaps(other) for n, one in enumerate(boxes) for other in boxes[:n]
        ) and all(axes.bbox.fully_contains(*corner) for box in boxes for corner in box.corners())
        dots = axes.transData.transform(points[axes.get_title()])
        assert not any(box.contains(*dot) for box in boxes for dot in dots)
    assert shown + left_out == 120 and shown > 100 and not missing
    wordy = [words * 5 for words in around]
    left_out, _ = word_senses.draw_points(
        {"one": np.zeros((60, 2))}, senses, wordy, "bank", tmp_path / "p.png"
    )
    assert 0 < left_out == 60 - len(saved.call_args.args[0].axes[0].texts) < 60


def test_only_letters_that_are_drawn_are_missed(tmp_path):
    """U+10FFFE is of no font; the words around points are drawn in a small picture alone."""
    pytest.importorskip("matplotlib")

    def draw(count, around, points=None):
        points = np.random.default_rng(0).normal(size=(count, 2)) if points is None else points
        return word_senses.draw_points({"PCA": points}, [None] * count, around, "", tmp_path / "p")

    odd = "bank \U0010fffd"
    assert draw(60, [odd] * 60)[1] == ["\U0010fffd"]
    assert draw(61, [odd] * 61) == (0, [])
    # The last one finds no room between the others at its own point.
    crowded = [*[f"a long text beside the bank {n}" * 4 for n in range(59)], odd * 30]
    left_out, missing = draw(60, crowded, np.zeros((60, 2)))
    assert left_out and missing == []


def test_the_image_shows_the_words_vectors(tmp_path, spied, capsys):
    """With a fine-tuned model: a point is the mean of the encoder's states of the word's tokens."""
    pytest.importorskip("matplotlib"), pytest.importorskip("sklearn")
    run = make_starting_run(ClassifierConfig(encoder=make_encoders()["bert"]))
    params, vocabulary = draw_params(run), train_vocabulary(TEXT * 20, 72, algorithm="bpe")
    start_workdir(tmp_path / "w", run, params, vocabulary)
    texts = [
        ("A bank, a dog.", "money"), ("No.", None), ("The Bank.", None),
        ("bank or bank", "river"), ("bank", "money"), ("out of a bank!", "river"),
    ]  # fmt: skip
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": text, "sense": sense}) + "\n" for text, sense in texts)
    )
    projected, draw = (spied(word_senses, name) for name in ("project_vectors", "draw_points"))
    path = tmp_path / "p.png"
    assert (
        main(
            split_words(
                f"senses --workdir {tmp_path / 'w'} --word bank --input {tmp_path / 'in.jsonl'}",
                f"--output {path}",
            )
        )
        == 0
    )
    assert f"{path}: 6 occurrences of 'bank' in 5 texts" in capsys.readouterr().out
    assert path.read_bytes().startswith(b"\x89PNG") and sorted(
        one.name for one in tmp_path.iterdir()
    ) == ["in.jsonl", "p.png", "w"]
    points, labels, around, title = draw.call_args.args[:4]
    assert [points_N2.shape for points_N2 in points.values()] == [
        (6, 2)
    ] * 2 and title == "'bank', last of w, step 0"
    assert labels == ["money", None, "river", "river", "money", "river"]
    assert around == [
        "A bank, a dog.",
        "The Bank.",
        "bank or bank",
        "bank or bank",
        "bank",
        "of a bank!",
    ]
    ids = (
        tokenizer.build_tokenizer(vocabulary, "bert").encode("bank").ids
    )  # [CLS], its tokens, [SEP]
    encode = jax.jit(partial(build(run.model.encoder).apply, method="encode"))
    states_BLD, _ = encode(
        {"params": params["encoder"]}, jnp.asarray([ids]), jnp.ones((1, len(ids)), bool)
    )
    assert len(ids) > 3
    np.testing.assert_allclose(
        projected.call_args.args[0][4], states_BLD[0, 1:-1].mean(axis=0), atol=1e-5
    )


@pytest.mark.parametrize(
    ("lines", "words", "message"),
    [
        (['{"text": "the bank"}'] * 4, (), "in.jsonl: 4 texts with 'bank'; a projection needs at least 5"),
        (['{"text": "the bank", "sense": 3}'], (), "in.jsonl:1: the field sense is a string"),
        (["", '{"txt": "the bank"}'], (), "in.jsonl:2: expected an object with the field text, a string"),
        ([], (), "in.jsonl: no text in it"),
        ([], ("--word", "two words"), "--word 'two words': expected one word, without white space"),
        ([], ("--output", "p.svg"), "--output p.svg: the name must end in .png"),
        ([], ("--output", "none/p.png"), "none: the folder of --output does not exist"),
    ],
)  # fmt: skip
def test_bad_input(tmp_path, monkeypatch, capsys, lines, words, message):
    monkeypatch.setattr("pretrain.cli.senses.NEEDS", {})  # as if the extras were installed
    (tmp_path / "in.jsonl").write_text("".join(line + "\n" for line in lines))
    argv = split_words(
        f"senses --workdir {tmp_path / 'w'} --word bank --input {tmp_path / 'in.jsonl'}",
        f"--output {tmp_path / 'p.png'}",
    )
    assert main([*argv, *words]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "p.png").exists()
    monkeypatch.setattr("pretrain.cli.senses.NEEDS", {"no_such_module": "metrics"})
    assert main(argv) == 2 and how_to_install("metrics") in capsys.readouterr().err
