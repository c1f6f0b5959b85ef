"""The features of benchmarks.papers.elmo_tagger: words of books, random vectors, a mix that is learned."""

import json

import numpy as np

from benchmarks.papers import elmo_tagger
from benchmarks.papers.elmo_tagger import average_layers, draw_vectors, join_layers, split_words
from benchmarks.papers.lstm_tagger import TaggedWords, train_taggers


def test_words_and_marks_are_divided():
    text = "“It’s a well-known fact,” he said.\nTwo—no, three!"
    assert split_words(text) == ('" It \'s a well-known fact , " he said .\nTwo — no , three !')


def test_the_books_are_written(tmp_path):
    folder = tmp_path / "books" / "train"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text(json.dumps({"text": "One, two."}) + "\n")
    assert elmo_tagger.write_words(tmp_path, tmp_path / "words.jsonl") == 4
    assert json.loads((tmp_path / "words.jsonl").read_text()) == {"text": "One , two ."}


def test_equal_words_have_equal_vectors():
    first, second, third = draw_vectors(["the", "fox", "the"])
    np.testing.assert_array_equal(first, third)
    assert np.abs(first - second).max() > 0.1


def test_layers_are_averaged_and_joined():
    states = {f"layer_{i}": np.full((2, 4), i, np.float32) for i in range(3)}
    np.testing.assert_array_equal(average_layers(states), np.ones((2, 4)))
    assert join_layers(states).shape == (2, 12) and join_layers(states)[0, -1] == 2


def test_a_mix_is_learned_of_the_layer_that_knows():
    """One layer of three shows the tags, the others are noise."""
    rng = np.random.default_rng(0)
    tags = rng.integers(0, 3, 400)
    parts = {}
    for name in ("train", "dev", "test"):
        layers = rng.standard_normal((3, 400, 3)).astype(np.float32)
        layers[1] = 3 * np.eye(3, dtype=np.float32)[tags]
        joined = np.concatenate(list(layers), axis=1)
        parts[name] = TaggedWords(joined, tags, np.arange(0, 401, 4))
    (result,) = train_taggers(parts, ("O", "B-A", "I-A"), 1, 20, layers=3)
    assert result["test"] > 0.8
