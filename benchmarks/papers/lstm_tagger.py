"""A tagger on given features of words: a two-layer bidirectional LSTM and a classification layer.

Several seeds are trained at once.

Axes: N seeds, B batch, L words of a row, D width of the features, H width of the LSTM in each
direction, G its four gates, C tags, S words of all sentences.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from models.elmo import Mix
from pretrain.evaluation import ner_metrics
from pretrain.training.optimizers import allow_promotion

LENGTHS = (16, 32, 64, 128)  # rows are padded to one of these, so that few shapes are compiled
BATCH, WIDTH, RATE = 32, 64, 4e-3
ADAM = allow_promotion(optax.adam(RATE))


class BidirectionalLstm(nn.Module):
    """A bidirectional LSTM layer (Hochreiter and Schmidhuber 1997; Graves and Schmidhuber 2005).

    Both directions run in one loop over the words, and the input's part of the gates is one matmul
    before the loop; flax's `nn.RNN` does neither. Padding, on the right, changes no state.
    """

    width: int

    @nn.compact
    def __call__(self, x_BLD: jax.Array, valid_BL: jax.Array) -> jax.Array:
        """Return the states [B, L, 2 H], forward then backward, of features [B, L, D]."""
        recurrent_2HG = self.param(
            "recurrent", nn.initializers.lecun_normal(batch_axis=0), (2, self.width, 4 * self.width)
        )
        forward_BLG, backward_BLG = jnp.split(nn.Dense(8 * self.width)(x_BLD), 2, axis=-1)
        x_L2BG = jnp.stack([forward_BLG, jnp.flip(backward_BLG, 1)]).transpose(2, 0, 1, 3)
        valid_L2B1 = jnp.stack([valid_BL, jnp.flip(valid_BL, 1)]).transpose(2, 0, 1)[..., None]

        def advance_word(carry: Any, inputs: Any) -> tuple[Any, jax.Array]:
            (hidden_2BH, cell_2BH), (x_2BG, valid_2B1) = carry, inputs
            write, forget, new, read = jnp.split(
                x_2BG + jnp.einsum("xbh,xhg->xbg", hidden_2BH, recurrent_2HG), 4, axis=-1
            )
            cell = nn.sigmoid(forget) * cell_2BH + nn.sigmoid(write) * jnp.tanh(new)
            hidden = nn.sigmoid(read) * jnp.tanh(cell)
            carry = jnp.where(valid_2B1, hidden, hidden_2BH), jnp.where(valid_2B1, cell, cell_2BH)
            return carry, carry[0]

        zeros_2BH = jnp.zeros((2, len(x_BLD), self.width))
        _, hidden_L2BH = jax.lax.scan(advance_word, (zeros_2BH, zeros_2BH), (x_L2BG, valid_L2B1))
        return jnp.concatenate(
            [hidden_L2BH[:, 0], jnp.flip(hidden_L2BH[:, 1], 0)], axis=-1
        ).transpose(1, 0, 2)


class LstmTagger(nn.Module):
    """A classification layer on two bidirectional LSTM layers.

    layers: how many layers of an encoder the features have side by side, of which the tagger learns
      the mix (Peters et al. 2018, equation 1).
    """

    width: int
    tags: int
    layers: int = 1

    @nn.compact
    def __call__(self, x_BLD: jax.Array, valid_BL: jax.Array) -> jax.Array:
        """Return the tags' logits [B, L, C] of features [B, L, D]."""
        if self.layers > 1:
            x_BLD = Mix(name="mix")(jnp.split(x_BLD, self.layers, axis=-1))
        for _ in range(2):
            x_BLD = BidirectionalLstm(self.width)(x_BLD, valid_BL)
        return nn.Dense(self.tags)(x_BLD)


class TaggedWords(NamedTuple):
    """The words of sentences, concatenated.

    Attributes:
      x: features [S, D].
      tags: int [S].
      starts: index of the first word of each sentence, and S.
    """

    x: np.ndarray
    tags: np.ndarray
    starts: np.ndarray

    def pad_rows(
        self, sentences: Sequence[int] | np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a batch of sentences, padded with empty rows to `BATCH`.

        Args:
          sentences: numbers of the sentences.
          length: words of a row.

        Returns:
          (x [B, L, D], tags [B, L], valid [B, L]).
        """
        x, tags, valid = (
            np.zeros((BATCH, length, self.x.shape[1]), np.float32),
            np.zeros((BATCH, length), np.int32),
            np.zeros((BATCH, length), bool),
        )
        for row, n in enumerate(sentences):
            lo, hi = self.starts[n : n + 2]
            x[row, : hi - lo], tags[row, : hi - lo], valid[row, : hi - lo] = (
                self.x[lo:hi],
                self.tags[lo:hi],
                True,
            )
        return x, tags, valid

    def draw_batches(
        self, rngs: Sequence[np.random.Generator]
    ) -> list[tuple[list[np.ndarray], int]]:
        """Return the batches of an epoch for each seed, of sentences of similar length.

        Each generator draws its own batches; the first one draws the order of the lengths.

        Returns:
          [([numbers of sentences of each seed], words of a row)].
        """
        lengths = np.array(LENGTHS)[np.searchsorted(LENGTHS, np.diff(self.starts))]
        batches = []
        for length in np.unique(lengths):
            drawn = [rng.permutation(np.flatnonzero(lengths == length)) for rng in rngs]
            batches += [
                ([numbers[i : i + BATCH] for numbers in drawn], length)
                for i in range(0, len(drawn[0]), BATCH)
            ]
        return [batches[i] for i in rngs[0].permutation(len(batches))]


@partial(jax.jit, static_argnames="model", donate_argnums=(1, 2))
@partial(jax.vmap, in_axes=(None, 0, 0, 0, 0, 0))
def update_params(
    model: LstmTagger,
    params: Any,
    moments: Any,
    x_BLD: jax.Array,
    tags_BL: jax.Array,
    valid_BL: jax.Array,
) -> tuple[Any, Any, jax.Array]:
    """Return (parameters, moments, loss) after a step of Adam on a batch's mean cross entropy.

    Every argument but the model has a leading axis of N seeds.
    """

    def compute_loss(params: Any) -> jax.Array:
        logits_BLC: Any = model.apply(params, x_BLD, valid_BL)
        nats_BL = optax.softmax_cross_entropy_with_integer_labels(logits_BLC, tags_BL)
        return jnp.where(valid_BL, nats_BL, 0.0).sum() / valid_BL.sum(dtype=jnp.float32)

    value, grads = jax.value_and_grad(compute_loss)(params)
    updates, moments = ADAM.update(grads, moments, params)
    return optax.apply_updates(params, updates), moments, value


@partial(jax.jit, static_argnames="model")
@partial(jax.vmap, in_axes=(None, 0, None, None))
def predict_tags(
    model: LstmTagger, params: Any, x_BLD: jax.Array, valid_BL: jax.Array
) -> jax.Array:
    """Return the most probable tag of each word [N, B, L] for the parameters of each seed."""
    logits_BLC: Any = model.apply(params, x_BLD, valid_BL)
    return logits_BLC.argmax(-1)


def compute_entity_f1(
    model: LstmTagger, params: Any, part: TaggedWords, names: Sequence[str]
) -> list[float]:
    """Return the entity F1 of each seed, as in `finetune --task tagging`."""
    num_seeds = len(jax.tree.leaves(params)[0])
    tags_NRL = np.full((num_seeds, len(part.starts) - 1, np.diff(part.starts).max() + 1), -1)
    for (which,), length in part.draw_batches([np.random.default_rng(0)]):
        x_BLD, _, valid_BL = part.pad_rows(which, length)
        predicted_NBL = np.asarray(predict_tags(model, params, x_BLD, valid_BL))
        for row, n in enumerate(which):
            length = part.starts[n + 1] - part.starts[n]
            tags_NRL[:, n, :length] = predicted_NBL[:, row, :length]
    split: Any = SimpleNamespace(
        sentence_starts=np.arange(len(part.tags) + 1), document_starts=part.starts, tags=part.tags
    )
    labels: Any = SimpleNamespace(labels=names)
    return [
        ner_metrics.compute_entity_metrics(tags_RL, labels, split)["entity_f1"]
        for tags_RL in tags_NRL
    ]


def train_taggers(
    parts: Mapping[str, TaggedWords],
    names: Sequence[str],
    seeds: int,
    epochs: int,
    layers: int = 1,
) -> list[dict[str, Any]]:
    """Train a tagger of each seed.

    Args:
      parts: {train, dev, test}.
      names: of the tags.
      seeds: number of seeds.
      epochs: number of epochs.
      layers: see `LstmTagger`.

    Returns:
      {epoch, dev, test, devs} of each seed: the epoch with the best entity F1 on dev, the entity
      F1 on dev and test at that epoch, and dev's F1 after each epoch.
    """
    model, train = LstmTagger(WIDTH, len(names), layers), parts["train"]
    rngs = [np.random.default_rng(seed) for seed in range(seeds)]
    example = jnp.zeros((1, 1, train.x.shape[1])), jnp.ones((1, 1), bool)
    params = jax.jit(jax.vmap(lambda key: model.init(key, *example)))(
        jax.vmap(jax.random.key)(jnp.arange(seeds))
    )
    # `update_params` donates its arguments, so that the best parameters are a copy.
    moments, best = jax.vmap(ADAM.init)(params), jax.tree.map(jnp.copy, params)
    results: list[dict[str, Any]] = [{"dev": -1.0, "devs": []} for _ in range(seeds)]
    for epoch in range(1, epochs + 1):
        losses = []
        for which, length in train.draw_batches(rngs):
            batch = [
                np.stack(arrays)
                for arrays in zip(*(train.pad_rows(numbers, length) for numbers in which))
            ]
            params, moments, loss_N = update_params(model, params, moments, *batch)
            losses.append(loss_N)
        dev = compute_entity_f1(model, params, parts["dev"], names)
        better_N = np.array([score > result["dev"] for score, result in zip(dev, results)])
        best = jax.tree.map(
            lambda new, old, better_N=better_N: jnp.where(
                better_N.reshape(-1, *(1,) * (new.ndim - 1)), new, old
            ),
            params,
            best,
        )
        for score, result in zip(dev, results):
            result |= {"epoch": epoch, "dev": score} if score > result["dev"] else {}
            result["devs"].append(score)
        mean_loss = np.mean(jax.device_get(losses))
        print(
            f"  epoch {epoch}: loss {mean_loss:.4f}, entity F1 of dev",
            *(f"{100 * score:.1f}" for score in dev),
            file=sys.stderr,
            flush=True,
        )
    for score, result in zip(compute_entity_f1(model, best, parts["test"], names), results):
        result["test"] = score
    return results
