"""The feature experiment reads every word of its corpus, its LSTM equals the reference, and it
learns what features reveal.
"""

import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from benchmarks.papers.feature_layers import ROWS, resolve_combination
from benchmarks.papers.feature_states import combine_layers, extract_states, split_sentences
from benchmarks.papers.lstm_tagger import BATCH, BidirectionalLstm, TaggedWords, train_taggers
from data.examples.tagged_sentences import Sentence
from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.inference.hidden_states import COMBINATIONS
from pretrain.workdir.trained import Trained

TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "A cloze is a test in which words are left out of a text.",
] * 12


def make_sentence(text, line=1):
    words = tuple(text.split(" "))
    return Sentence(words, ("O",) * len(words), "a.conll", line, 1)


@pytest.fixture(scope="module")
def trained():
    rng, run = (
        np.random.default_rng(0),
        make_starting_run(BertConfig(vocab=128, length=40, width=8, depth=1, num_heads=2, mlp=8)),
    )
    params = jax.tree.map(
        lambda leaf: rng.normal(0, 0.4, leaf.shape).astype(np.float32),
        jax.eval_shape(make_initializer(run)),
    )
    return Trained(None, run, 7, params, train_vocabulary(TEXT, 110, algorithm="bpe"))


def test_a_long_sentence_is_read_in_parts_that_are_cut_between_words(trained):
    ids = lambda text: len(trained.vocabulary.encode(text))  # noqa: E731
    long, words = make_sentence("the fox " * 6 + "dog", 5), "browner" * 5
    most = 4 * ids("the fox")
    texts = split_sentences([long, make_sentence(f"a {words} b", 30)], trained.vocabulary, most)
    assert texts == [
        *(("a.conll:5", "the fox the fox the fox the fox"), ("a.conll:13", "the fox the fox dog")),
        *(("a.conll:30", "a"), ("a.conll:31", words), ("a.conll:32", "b")),
    ]
    assert ids(words) > most


def test_each_word_has_its_states(trained):
    """A word beyond the end of the first part has the features of its own part."""
    long, short = make_sentence("lazy " * 60 + "fox"), make_sentence("fox over \u200b", 40)
    states, facts = extract_states(trained, [long, short])
    assert (
        facts == {"sentences": 2, "words": 64, "parts": facts["parts"], "cut": 0, "empty": 1}
        and facts["parts"] > 2
    )
    parts = split_sentences([long], trained.vocabulary, trained.run.data.objective.length - 2)
    last, _ = extract_states(trained, [make_sentence(parts[-1][1])])
    assert list(states) == ["layer_0", "layer_1"] and states["layer_1"].shape == (64, 8)
    np.testing.assert_allclose(states["layer_1"][60], last["layer_1"][-1], atol=1e-5)
    assert not states["layer_1"][63].any() and states["layer_1"][61:63].any(axis=1).all()
    with pytest.raises(ValueError, match="a.conll: 2 words, of which 3 were encoded"):
        extract_states(trained, [make_sentence("a fox")._replace(words=("a", "fox fox"))])


def test_combinations_of_states():
    states = {f"layer_{i}": np.full((3, 2), 10.0**i, np.float32) for i in range(5)}
    found = {name: combine_layers(states, name) for name in COMBINATIONS}
    assert found["concat_last_four"].shape == (3, 8) and found["concat_last_four"][0].tolist() == [
        10,
        10,
        100,
        100,
        1000,
        1000,
        10000,
        10000,
    ]
    assert [float(found[name][2, 1]) for name in ("embeddings", "second_to_last", "last")] == [
        1,
        1000,
        10000,
    ]
    np.testing.assert_array_equal(found["sum_all"], found["sum_last_four"])
    assert (
        resolve_combination("sum_all", 4) == "sum_last_four"
        and resolve_combination("sum_all", 6) == "sum_all"
        and resolve_combination("last", 4) == "last"
    )
    assert set(ROWS["random weights"]) <= set(ROWS["pretrained"]) == set(COMBINATIONS)


def test_the_layer_is_flaxs_bidirectional_lstm():
    rng = np.random.default_rng(0)
    x_BLD, many_B = rng.normal(size=(3, 5, 4)).astype(np.float32), np.array([5, 2, 0])
    peer = nn.Bidirectional(nn.RNN(nn.OptimizedLSTMCell(6)), nn.RNN(nn.OptimizedLSTMCell(6)))
    init = functools.partial(peer.init, jax.random.key(0), x_BLD, seq_lengths=many_B)
    theirs = jax.eval_shape(init)["params"]
    theirs = jax.tree.map(lambda leaf: rng.normal(0, 0.5, leaf.shape).astype(np.float32), theirs)
    ways = [theirs["forward_rnn"]["cell"], theirs["backward_rnn"]["cell"]]

    def stack_gates(which, part):
        return np.stack(
            [
                np.concatenate([way[f"{which}{gate}"][part] for gate in "ifgo"], axis=-1)
                for way in ways
            ]
        )

    dense = {
        "kernel": np.concatenate(stack_gates("i", "kernel"), axis=-1),
        "bias": np.concatenate(stack_gates("h", "bias")),
    }
    ours = {"recurrent": stack_gates("h", "kernel"), "Dense_0": dense}
    valid_BL = np.arange(5) < many_B[:, None]
    found, expected = jax.device_get(
        (
            jax.jit(BidirectionalLstm(6).apply)({"params": ours}, x_BLD, valid_BL),
            jax.jit(peer.apply)({"params": theirs}, x_BLD, seq_lengths=many_B),
        )
    )
    np.testing.assert_allclose(found[valid_BL], expected[valid_BL], atol=1e-5)


def test_a_tag_that_depends_on_the_previous_word_is_learned():
    """The words after a mark are entities: their own features do not reveal which."""
    rng = np.random.default_rng(0)

    def make_part(count):
        starts = np.cumsum([0, *rng.integers(4, 9, count)])
        mark_S = (rng.random(starts[-1]) < 0.3) & ~np.isin(np.arange(starts[-1]) + 1, starts)
        x_SD = np.stack([mark_S, ~mark_S, rng.random(len(mark_S))], axis=1).astype(np.float32)
        return TaggedWords(x_SD, np.roll(mark_S, 1).astype(np.int32), starts)

    parts = {"train": make_part(3 * BATCH - 5), "dev": make_part(20), "test": make_part(20)}
    found = train_taggers(parts, ("O", "B-x"), seeds=2, epochs=12)
    assert len(found) == 2 and all(
        len(one["devs"]) == 12 and one["dev"] == max(one["devs"]) > 0.95 < one["test"]
        for one in found
    )
    assert (
        all(one["epoch"] == 1 + one["devs"].index(one["dev"]) for one in found)
        and found[0]["devs"] != found[1]["devs"]
    )


def test_each_sentence_is_read_once_an_epoch_by_every_seed():
    lengths = np.random.default_rng(1).integers(1, 40, 150)
    part = TaggedWords(
        np.zeros((lengths.sum(), 1), np.float32),
        np.zeros(lengths.sum(), int),
        np.cumsum([0, *lengths]),
    )
    drawn = part.draw_batches([np.random.default_rng(seed) for seed in range(2)])
    for seed in range(2):
        assert sorted(np.concatenate([which[seed] for which, _ in drawn])) == list(range(150))
    assert all(
        lengths[own].max() <= length and len(own) <= BATCH
        for which, length in drawn
        for own in which
    )
    assert any(list(which[0]) != list(which[1]) for which, _ in drawn)
    x, tags, valid = part.pad_rows(drawn[0][0][0], drawn[0][1])
    assert x.shape == (BATCH, drawn[0][1], 1) and valid.sum() == lengths[drawn[0][0][0]].sum()
