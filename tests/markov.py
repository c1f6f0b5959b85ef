"""A Markov source of three letters, whose conditional probabilities given any letters are a table."""

from types import SimpleNamespace

import numpy as np

from data.store.reader import Store
from data.store.split import MixtureSource, Split

STEP_33 = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.25, 0.25]])  # p(next | letter)
STEPS = [np.linalg.matrix_power(STEP_33, n) for n in range(64)]
FIRST_3 = STEPS[-1][0]  # the stationary distribution, of each letter alone


def draw_texts(rng, number, length):
    """Return texts [number, length] of letters 0 to 2."""
    texts = np.empty((number, length), np.int64)
    texts[:, 0] = rng.choice(3, number, p=FIRST_3)
    for i in range(1, length):
        before = STEP_33[texts[:, i - 1]].cumsum(axis=1)
        texts[:, i] = (rng.random((number, 1)) > before).sum(axis=1).clip(max=2)
    return texts


def compute_log_likelihood(text):
    """Return log p(text)."""
    return np.log(FIRST_3[text[0]]) + np.log(STEP_33[text[:-1], text[1:]]).sum()


def compute_conditionals(text, masked):
    """Return log p(letter | the letters that are not masked) of each masked letter, from the left."""
    seen = np.flatnonzero(~np.asarray(masked))
    found = []
    for i in np.flatnonzero(masked):
        left, right = seen[seen < i], seen[seen > i]
        p_3 = STEPS[i - left[-1]][text[left[-1]]] if len(left) else FIRST_3
        if len(right):
            p_3 = p_3 * STEPS[right[0] - i][:, text[right[0]]]
        found.append(np.log(p_3[text[i]] / p_3.sum()))
    return np.array(found)


class LetterStore(Store):
    """A store in memory: each document is a text of the Markov source, letter 0 is the id 7."""

    def __init__(self, texts):
        super().__init__("nowhere", {})
        starts = np.arange(len(texts) + 1) * texts.shape[1]
        source = MixtureSource("letters", (0, len(texts)), 1.0)
        self.only = Split((texts.ravel() + 7).astype(np.uint16), starts, starts, (source,))
        roles = {role: i for i, role in enumerate(("pad", "unk", "cls", "sep", "mask"))}
        self.vocabulary = SimpleNamespace(
            kind="letters", size=10, special=np.arange(10) < 7, pieces=tuple("pucsm__abc"), **roles
        )

    def open_split(self, name):
        return self.only
