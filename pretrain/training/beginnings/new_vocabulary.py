"""Parameters of a trained model for another vocabulary, as an extended one, row by row.

A token that both vocabularies have takes its row along. The row of any other token begins as the
mean of the rows of the pieces into which the old vocabulary splits its text, or as the mean of all
(Hewitt 2021). Wherever a parameter has an axis of the vocabulary, such as embeddings, output
weights and their biases, it is treated alike, so tied tables stay tied.

Axes: V ids of the old vocabulary, W rows of the new model.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np

from data.vocabulary.base import ROLE_PIECES, Vocabulary
from models import build
from models.layers.layer_layout import flatten_params, unflatten_params
from pretrain.config import Run
from pretrain.settings.overrides import ConfigError
from pretrain.training.beginnings.given import GivenModel
from pretrain.training.state import init_params

NEW_ROWS = ("pieces", "mean")  # what the row of a new token begins with


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """What each row of the new model begins with.

    Attributes:
      copied_W: int64 [W], the old row that is copied; -1 for a mean.
      pieces: {new row: old rows, of which it is the mean}; the other new rows are the mean of all.
      ordinary_V: int64, the old rows of which that mean is: tokens that are not special.
      num_tokens: ids of the new vocabulary; the rows after them have no token.
    """

    copied_W: np.ndarray
    pieces: dict[int, list[int]]
    ordinary_V: np.ndarray
    num_tokens: int

    def move_rows(self, leaf: np.ndarray, axis: int) -> np.ndarray:
        """Return a parameter with the new rows along an axis."""
        old = np.moveaxis(np.asarray(leaf), axis, 0)
        new = np.empty((len(self.copied_W), *old.shape[1:]), old.dtype)
        new[:] = old[self.ordinary_V].mean(axis=0, dtype=np.float64)
        for row, ids in self.pieces.items():
            new[row] = old[ids].mean(axis=0, dtype=np.float64)
        is_copied = self.copied_W >= 0
        new[is_copied] = old[self.copied_W[is_copied]]
        return np.ascontiguousarray(np.moveaxis(new, 0, axis))

    def describe(self) -> str:
        """Return how many tokens take their row along, and what the others begin with."""
        copied = int((self.copied_W[: self.num_tokens] >= 0).sum())
        means = self.num_tokens - copied - len(self.pieces)
        return (
            f"of {self.num_tokens:,} tokens {copied:,} have their old row, {len(self.pieces):,} "
            f"the mean of their pieces, {means:,} the mean of all; the optimizer begins anew"
        )


def change_vocabulary(
    run: Run, given: GivenModel, encoding: Any, new_rows: str
) -> tuple[GivenModel, str]:
    """Return a given model with the rows of another vocabulary, and a line on them.

    Args:
      run: the run that begins; its `model.vocab` is the number of rows.
      given: the model with the old vocabulary.
      encoding: the new vocabulary.
      new_rows: `pieces` or `mean`.

    Raises:
      ConfigError: the model has no table of tokens, or one whose rows are not the tokens.
    """
    if not isinstance(encoding, Vocabulary) or not isinstance(given.encoding, Vocabulary):
        raise ConfigError("--new-rows: both models need a vocabulary of texts")
    model: Any = run.model
    vocab = model.vocab
    axes = find_vocabulary_axes(run, given.config.vocab)
    plan = plan_rows(given.encoding, encoding, given.config.vocab, vocab, new_rows)
    leaves = flatten_params(given.params)
    moved = {
        path: plan.move_rows(leaf, axes[path]) if path in axes else leaf
        for path, leaf in leaves.items()
    }
    config = dataclasses.replace(given.config, vocab=vocab)
    changed = dataclasses.replace(given, config=config, params=unflatten_params(moved))
    return changed, plan.describe()


def find_vocabulary_axes(run: Run, vocab: int) -> dict[str, int]:
    """Return {path of a parameter: its axis of the vocabulary}.

    It is the axis that grows by one with `model.vocab`.

    Args:
      run: a run of the model.
      vocab: rows of the given model.

    Raises:
      ConfigError: a table's rows are not the tokens, as with clusters; or a teacher has some, too.
    """
    model: Any = run.model
    kind = type(model).__name__
    if model.frozen_params:
        raise ConfigError(f"--new-rows: a {kind} has parameters that are not trained")
    shapes = []
    for size in (vocab, vocab + 1):
        resized = dataclasses.replace(model, vocab=size)
        init = partial(init_params, build(resized), run.data.objective, 0)
        tree = flatten_params(jax.eval_shape(init))
        shapes.append({path: leaf.shape for path, leaf in tree.items()})
    axes = {}
    for path, before in shapes[0].items():
        grown = [i for i, sizes in enumerate(zip(before, shapes[1][path])) if len({*sizes}) > 1]
        if grown and before[grown[0]] != vocab:
            raise ConfigError(
                f"--new-rows: {path} has {before[grown[0]]:,} rows for {vocab:,} tokens, as of a "
                f"cluster; a {kind} of one table can change its vocabulary"
            )
        if grown:
            axes[path] = grown[0]
    return axes


def plan_rows(
    old: Vocabulary, new: Vocabulary, rows: int, new_rows: int, begin_with: str
) -> RowPlan:
    """Return what each row of a new model begins with.

    Args:
      rows: of the old model, at least as many as its vocabulary has ids.
      new_rows: of the new model. Those without a token take along rows without a token.
      begin_with: `pieces` or `mean`, for a token that the old vocabulary lacks.
    """
    copied_W = np.full(new_rows, -1, np.int64)
    copied_W[: new.size] = match_tokens(old, new)
    spare = min(new_rows - new.size, rows - old.size)
    copied_W[new.size : new.size + spare] = np.arange(old.size, old.size + spare)
    pieces = {}
    if begin_with == "pieces":
        texts = {i: read_token(new, i) for i in np.flatnonzero(copied_W[: new.size] < 0).tolist()}
        texts = {i: text for i, text in texts.items() if text}
        for i, ids in zip(texts, old.encode_batch(list(texts.values()))):
            if known := [each for each in ids if each != old.unk]:
                pieces[i] = known
    ordinary = np.flatnonzero(~old.special)
    return RowPlan(copied_W, pieces, ordinary, new.size)


def match_tokens(old: Vocabulary, new: Vocabulary) -> np.ndarray:
    """Return the old id of each new token, int64 [tokens]; -1 for a token that is new.

    Special tokens match by their piece or their role, sentinels by their number, others by their
    piece, or where the kinds of vocabulary differ, by their text and whether a word begins there.
    """
    found = np.full(new.size, -1, np.int64)
    by_text: dict[Any, int] = {}
    for i in range(old.size - 1, -1, -1):  # The first of two alike counts.
        by_text[name_token(old, i, old.kind == new.kind)] = i
    for i in range(new.size):
        found[i] = by_text.get(name_token(new, i, old.kind == new.kind), -1)
    for role in ROLE_PIECES:
        before, after = (vars(vocabulary)[role] for vocabulary in (old, new))
        if None not in (before, after) and found[after] < 0:
            found[after] = before
    for before, after in zip(old.sentinels, new.sentinels):
        found[after] = before
    return found


def name_token(vocabulary: Vocabulary, token_id: int, by_piece: bool) -> Any:
    """Return what two vocabularies call the same token; something unique for one without a text."""
    if by_piece or vocabulary.special[token_id]:
        return bool(vocabulary.special[token_id]), vocabulary.pieces[token_id]
    text = read_token(vocabulary, token_id)
    return (bool(vocabulary.starts_word[token_id]), text) if text else (id(vocabulary), token_id)


def read_token(vocabulary: Vocabulary, token_id: int) -> str:
    """Return the text of a token without blanks; "" for a special one or a part of a character."""
    if vocabulary.special[token_id]:
        return ""
    text = vocabulary.decode([token_id]).strip().removeprefix("##")
    return "" if "\ufffd" in text else text
