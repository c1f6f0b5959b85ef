"""The features of `feature_layers`: hidden states of each word, from a frozen encoder.

Axes: D width of a state, S words of all sentences.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from data.examples import tagged_sentences
from data.store.atomic import replace_file
from models import build
from pretrain.config import Mesh
from pretrain.inference.hidden_states import COMBINATIONS, extract_features
from pretrain.mesh.sharding import make_mesh
from pretrain.training.state import init_params
from pretrain.workdir.trained import open_trained

if TYPE_CHECKING:
    from data.examples.tagged_sentences import Sentence
    from data.vocabulary.base import Vocabulary
    from pretrain.workdir.trained import Trained


def split_sentences(
    sentences: Sequence[Sentence], vocabulary: Vocabulary, max_tokens: int
) -> list[tuple[str, str]]:
    """Split sentences into parts of at most `max_tokens` tokens.

    Words are not split; a word with more tokens is a part of its own.

    Returns:
      [(position in the file, text)].
    """
    texts = []
    for sentence, word_ids in zip(
        sentences,
        tagged_sentences.encode_words(vocabulary, [sentence.words for sentence in sentences]),
    ):
        part, num_tokens = [], 0
        for i, (word, ids) in enumerate(zip(sentence.words, word_ids)):
            if part and num_tokens + len(ids) > max_tokens:
                texts.append((sentence.locate_word(i - len(part)), " ".join(part)))
                part, num_tokens = [], 0
            part.append(word)
            num_tokens += len(ids)
        texts.append((sentence.locate_word(len(sentence.words) - len(part)), " ".join(part)))
    return texts


def extract_states(
    trained: Trained, sentences: Sequence[Sentence]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the states of each word's first token, and counts.

    Returns:
      ({layer_n: float32 [S, D]}, {sentences, words, parts, cut, empty}). The state of a word
      without tokens is zero.

    Raises:
      ValueError: if the encoded words are not the sentences'.
    """
    model: Any = trained.run.model
    # A model of characters learns no positions, and reads a sentence of any length whole.
    longest = model.length if model.characters else trained.run.data.objective.length
    texts = split_sentences(sentences, trained.vocabulary, longest - 2)  # [CLS], [SEP]
    mesh = make_mesh(Mesh(data=1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        features = extract_features(trained, mesh, texts, layers=("all",), pooling="word")
    num_words = sum(len(sentence.words) for sentence in sentences)
    num_encoded = int(features.arrays["offsets"][-1])
    if num_words != num_encoded:
        raise ValueError(
            f"{sentences[0].source}: {num_words} words, of which {num_encoded} were encoded: "
            "a word has white space in it, or was truncated"
        )
    states = {
        name: np.nan_to_num(array)
        for name, array in features.arrays.items()
        if name.startswith("layer_")
    }
    return states, {
        "sentences": len(sentences),
        "words": num_words,
        "parts": len(texts),
        "cut": features.num_cut,
        "empty": features.num_empty,
    }


def open_and_extract(
    open_encoder: Callable[[pathlib.Path], Trained],
    workdir: pathlib.Path,
    sentences: Sequence[Sentence],
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Open the encoder of a workdir and return `extract_states` of the sentences."""
    return extract_states(open_encoder(workdir), sentences)


def open_untrained(workdir: pathlib.Path) -> Trained:
    """Return the encoder of a workdir with random parameters."""
    trained = open_trained(workdir)
    fresh = jax.jit(
        partial(
            init_params,
            build(trained.run.model),
            trained.run.data.objective,
            trained.run.train.seed,
        )
    )()
    return dataclasses.replace(trained, params=fresh, step=0)


def load_or_make(
    path: pathlib.Path,
    make: Callable[[], tuple[dict[str, np.ndarray], dict[str, Any]]],
    force: bool,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the JSON object of a .npz file, which `make` makes if it is missing.

    Args:
      force: make it even if it exists.
    """
    if force or not path.exists():
        arrays, facts = make()
        contents: dict[str, Any] = {**arrays, "about": np.array(json.dumps(facts))}
        with replace_file(path) as partial_path:
            np.savez(partial_path, **contents)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(str(arrays.pop("about")))


def combine_layers(states: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return a combination, float32 [S, D], of the states {layer_n: [S, D]}."""
    combine: Any = COMBINATIONS[name].combine
    return np.asarray(combine([states[f"layer_{i}"] for i in range(len(states))]))
