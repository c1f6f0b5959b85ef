"""A tagger on features of words that are given: a two-layer bidirectional LSTM and a classification layer, of several seeds at once.

N seeds   B batch   L words of a row   D width of the features   H width of the LSTM, each way   G its four gates   C tags   S words of all sentences
"""

import sys
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from pretrain.evaluation import ner_metrics
from pretrain.training.optimizers import allow_promotion

LENGTHS = (16, 32, 64, 128)  # rows are padded to these, so that few shapes are compiled
BATCH, WIDTH, RATE = 32, 64, 4e-3
ADAM = allow_promotion(optax.adam(RATE))


class Lstm(nn.Module):
    """A bidirectional layer (Hochreiter and Schmidhuber 1997; Graves and Schmidhuber 2005): [B, L, D] to [B, L, 2 H], forwards and backwards.

    Both ways in one loop over the words, with their share of the gates as one product before it: flax's `nn.RNN` has neither. Padding, on
    the right, changes no state.
    """

    width: int

    @nn.compact
    def __call__(self, x_BLD, valid_BL):
        recurrent_2HG = self.param(
            "recurrent", nn.initializers.lecun_normal(batch_axis=0), (2, self.width, 4 * self.width)
        )
        forward_BLG, backward_BLG = jnp.split(nn.Dense(8 * self.width)(x_BLD), 2, axis=-1)
        x_L2BG = jnp.stack([forward_BLG, jnp.flip(backward_BLG, 1)]).transpose(2, 0, 1, 3)
        valid_L2B1 = jnp.stack([valid_BL, jnp.flip(valid_BL, 1)]).transpose(2, 0, 1)[..., None]

        def step(carry, at):
            (hidden_2BH, cell_2BH), (x_2BG, valid_2B1) = carry, at
            write, forget, new, read = jnp.split(
                x_2BG + jnp.einsum("xbh,xhg->xbg", hidden_2BH, recurrent_2HG), 4, axis=-1
            )
            cell = nn.sigmoid(forget) * cell_2BH + nn.sigmoid(write) * jnp.tanh(new)
            hidden = nn.sigmoid(read) * jnp.tanh(cell)
            carry = jnp.where(valid_2B1, hidden, hidden_2BH), jnp.where(valid_2B1, cell, cell_2BH)
            return carry, carry[0]

        zeros_2BH = jnp.zeros((2, len(x_BLD), self.width))
        _, hidden_L2BH = jax.lax.scan(step, (zeros_2BH, zeros_2BH), (x_L2BG, valid_L2B1))
        return jnp.concatenate(
            [hidden_L2BH[:, 0], jnp.flip(hidden_L2BH[:, 1], 0)], axis=-1
        ).transpose(1, 0, 2)


class Tagger(nn.Module):
    """Features [B, L, D] to scores of tags [B, L, C]."""

    width: int
    tags: int

    @nn.compact
    def __call__(self, x_BLD, valid_BL):
        for _ in range(2):
            x_BLD = Lstm(self.width)(x_BLD, valid_BL)
        return nn.Dense(self.tags)(x_BLD)


class Part(NamedTuple):
    """The words of some sentences, one behind the other. x: [S, D]; tags: int [S]; starts: where each sentence begins, and the end."""

    x: np.ndarray
    tags: np.ndarray
    starts: np.ndarray

    def rows(self, which, length):
        """(x [B, L, D], tags [B, L], valid [B, L]) of the sentences of these numbers, and of none, so that there are always BATCH."""
        x, tags, valid = (
            np.zeros((BATCH, length, self.x.shape[1]), np.float32),
            np.zeros((BATCH, length), np.int32),
            np.zeros((BATCH, length), bool),
        )
        for row, n in enumerate(which):
            lo, hi = self.starts[n : n + 2]
            x[row, : hi - lo], tags[row, : hi - lo], valid[row, : hi - lo] = (
                self.x[lo:hi],
                self.tags[lo:hi],
                True,
            )
        return x, tags, valid

    def batches(self, rngs):
        """[([numbers of sentences] for each rng, length of the rows)]: those of about one length, drawn by each, in an order that the first draws."""
        lengths = np.array(LENGTHS)[np.searchsorted(LENGTHS, np.diff(self.starts))]
        found = []
        for length in np.unique(lengths):
            drawn = [rng.permutation(np.flatnonzero(lengths == length)) for rng in rngs]
            found += [
                ([own[i : i + BATCH] for own in drawn], length)
                for i in range(0, len(drawn[0]), BATCH)
            ]
        return [found[i] for i in rngs[0].permutation(len(found))]


@partial(jax.jit, static_argnames="model", donate_argnums=(1, 2))
@partial(jax.vmap, in_axes=(None, 0, 0, 0, 0, 0))
def update(model, params, moments, x_BLD, tags_BL, valid_BL):
    """(parameters, moments, loss) after a step of Adam on the mean cross-entropy of a batch's words; of N seeds at once, as each argument is."""

    def loss(params):
        nats_BL = optax.softmax_cross_entropy_with_integer_labels(
            model.apply(params, x_BLD, valid_BL), tags_BL
        )
        return jnp.where(valid_BL, nats_BL, 0.0).sum() / valid_BL.sum(dtype=jnp.float32)

    value, grads = jax.value_and_grad(loss)(params)
    moves, moments = ADAM.update(grads, moments, params)
    return optax.apply_updates(params, moves), moments, value


@partial(jax.jit, static_argnames="model")
@partial(jax.vmap, in_axes=(None, 0, None, None))
def likeliest(model, params, x_BLD, valid_BL):
    """The likeliest tag of each word [N, B, L], by the parameters of each seed."""
    return model.apply(params, x_BLD, valid_BL).argmax(-1)


def entity_f1(model, params, part, names):
    """The entity F1 of a part, by the parameters of each seed: that of `finetune --task tagging`."""
    seeds = len(jax.tree.leaves(params)[0])
    numbers = np.full((seeds, len(part.starts) - 1, np.diff(part.starts).max() + 1), -1)
    for (which,), length in part.batches([np.random.default_rng(0)]):
        x_BLD, _, valid_BL = part.rows(which, length)
        told_NBL = np.asarray(likeliest(model, params, x_BLD, valid_BL))
        for row, n in enumerate(which):
            many = part.starts[n + 1] - part.starts[n]
            numbers[:, n, :many] = told_NBL[:, row, :many]
    split = SimpleNamespace(
        sentence_starts=np.arange(len(part.tags) + 1), document_starts=part.starts, tags=part.tags
    )
    return [
        ner_metrics.scores(own, SimpleNamespace(labels=names), split)["entity_f1"]
        for own in numbers
    ]


def learn(parts, names, seeds, epochs):
    """[{"epoch", "dev", "test"}] of each seed: the epoch that is best on dev, and the entity F1 there on both; "devs": dev's after each epoch."""
    model, rngs, train = (
        Tagger(WIDTH, len(names)),
        [np.random.default_rng(seed) for seed in range(seeds)],
        parts["train"],
    )
    example = jnp.zeros((1, 1, train.x.shape[1])), jnp.ones((1, 1), bool)
    params = jax.jit(jax.vmap(lambda key: model.init(key, *example)))(
        jax.vmap(jax.random.key)(jnp.arange(seeds))
    )
    moments, best = (
        jax.vmap(ADAM.init)(params),
        jax.tree.map(jnp.copy, params),
    )  # `update` gives its arguments away
    found = [{"dev": -1.0, "devs": []} for _ in range(seeds)]
    for epoch in range(1, epochs + 1):
        losses = []
        for which, length in train.batches(rngs):
            batch = [
                np.stack(arrays) for arrays in zip(*(train.rows(own, length) for own in which))
            ]
            params, moments, loss_N = update(model, params, moments, *batch)
            losses.append(loss_N)
        dev = entity_f1(model, params, parts["dev"], names)
        better_N = np.array([now > one["dev"] for now, one in zip(dev, found)])
        best = jax.tree.map(
            lambda new, old, better_N=better_N: jnp.where(
                better_N.reshape(-1, *(1,) * (new.ndim - 1)), new, old
            ),
            params,
            best,
        )
        for now, one in zip(dev, found):
            one |= {"epoch": epoch, "dev": now} if now > one["dev"] else {}
            one["devs"].append(now)
        told = " ".join(f"{100 * now:.1f}" for now in dev)
        print(
            f"  epoch {epoch}: loss {np.mean(jax.device_get(losses)):.4f}, entity F1 of dev {told}",
            file=sys.stderr,
            flush=True,
        )
    for then, one in zip(entity_f1(model, best, parts["test"], names), found):
        one["test"] = then
    return found
