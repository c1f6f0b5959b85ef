"""Texts that share a row give the same hidden states, losses and gradients as alone, in every model
that supports packing.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.training.losses import find_loss

LENGTHS = (
    (5, 9, 3, 4),
    (12, 8),
    (6, 2, 7),
)  # lengths of the texts of each row of 24 tokens: one row is full
L, P, A = (
    24,
    3,
    9,
)  # masked positions of a text and of a packed row of four texts; number of texts
OF_ALL_TOKENS = ("token_ids", "attention_mask", "discriminator_weights", "state_weights")
FAMILIES = {
    "bert": "masked_lm",
    "roberta": "masked_lm",
    "albert": "masked_lm",
    "distilbert": "distillation",
    "electra": "replaced_token",
    "deberta_v3": "replaced_token",
}


def draw_texts(seed=0):
    """Return the texts, each in a row of its own: ids [A, L] and masked positions, labels, weights
    and uniforms [A, P].
    """
    rng = np.random.default_rng(seed)
    length_A = np.concatenate(LENGTHS)
    valid_AL = np.arange(L) < length_A[:, None]
    weights_AP = np.arange(P) < np.minimum(length_A, P)[:, None]
    positions_AP = np.stack([np.sort(np.resize(rng.permutation(length), P)) for length in length_A])
    return {
        "token_ids": np.where(valid_AL, rng.integers(1, 50, (A, L)), 0).astype(np.int32),
        "attention_mask": valid_AL,
        "masked_positions": positions_AP.astype(np.int32),
        "labels": rng.integers(0, 50, (A, P)).astype(np.int32),
        "label_weights": weights_AP.astype(np.float32),
        "uniforms": rng.random((A, P), np.float32),
        "discriminator_weights": valid_AL.astype(np.float32),
        "state_weights": valid_AL.astype(np.float32),
    }


def pack_texts(alone):
    """Return the same texts in three rows."""
    rows = {key: [] for key in (*alone, "segment_ids")}
    text = 0
    for lengths in LENGTHS:
        offset, row = 0, {key: [] for key in rows}
        for number, n in enumerate(lengths, 1):
            for key in OF_ALL_TOKENS:
                row[key].append(alone[key][text, :n])
            row["segment_ids"].append(np.full(n, number, np.int32))
            row["masked_positions"].append(alone["masked_positions"][text] + np.int32(offset))
            for key in ("labels", "label_weights", "uniforms"):
                row[key].append(alone[key][text])
            offset, text = offset + n, text + 1
        for key, parts in row.items():
            value = np.concatenate(parts)
            wide = L if key in (*OF_ALL_TOKENS, "segment_ids") else 4 * P
            rows[key].append(np.pad(value, (0, wide - len(value))))
    return {key: np.stack(value) for key, value in rows.items()}


ALONE = draw_texts()
PACKED = pack_texts(ALONE)


@pytest.fixture(scope="module", params=FAMILIES)
def computed(request, make, tiny_configs):
    """Return computed(batch): (hidden states, sums of the loss) of a model."""
    config = tiny_configs[request.param]
    if request.param == "distilbert":
        config = dataclasses.replace(config, teacher_depth=2)
    model, params = make(config)
    loss = find_loss(FAMILIES[request.param])

    def compute_outputs(params, batch):
        states, _ = model.apply(
            {"params": params},
            batch["token_ids"],
            batch["attention_mask"],
            segment_ids=batch.get("segment_ids"),
            method="encode",
        )
        return states, loss.sum_batch(model, params, batch)

    run = jax.jit(compute_outputs)
    return lambda batch: jax.device_get(run(params, batch))


def of_texts(states_BLD):
    """Return the states of a packed batch by text: a list of [n, D]."""
    return [
        states_BLD[b, sum(LENGTHS[b][:i]) :][:n]
        for b in range(len(LENGTHS))
        for i, n in enumerate(LENGTHS[b])
    ]


@pytest.mark.held_by(2)
def test_a_text_in_a_packed_row_is_as_if_alone(computed):
    states, sums = computed(PACKED)
    alone, expected = computed(ALONE)
    for text, (mine, n) in enumerate(zip(of_texts(states), np.concatenate(LENGTHS), strict=True)):
        np.testing.assert_allclose(mine, alone[text, :n], atol=1e-5)
    assert sums.keys() == expected.keys()
    for name in sums:
        np.testing.assert_allclose(sums[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.held_by(2)
def test_one_texts_words_change_nothing_in_another(computed):
    before = of_texts(computed(PACKED)[0])
    for number in (1, 2):
        tokens_BL = np.where(
            PACKED["segment_ids"] == number, (PACKED["token_ids"] + 7) % 50, PACKED["token_ids"]
        )
        after = of_texts(computed(PACKED | {"token_ids": tokens_BL})[0])
        for was, now, mine in zip(
            before,
            after,
            [i + 1 == number for lengths in LENGTHS for i in range(len(lengths))],
            strict=True,
        ):
            moved = np.abs(now - was).max(axis=-1)
            assert (
                (moved > 1e-4).all() if mine else (moved < 1e-6).all()
            )  # all of its own text, and of no other


def test_gradients_are_those_of_texts_alone(make, bert_config):
    """Positions without text have no effect, however long the rows are."""
    model, params = make(bert_config)
    gradients = jax.jit(
        jax.grad(
            lambda params, batch: find_loss("masked_lm").sum_batch(model, params, batch)[
                "masked_lm"
            ]
        )
    )
    grads = jax.device_get(gradients(params, PACKED))
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-3, atol=2e-4), grads, gradients(params, ALONE)
    )
    reached = np.flatnonzero(
        np.abs(grads["bert"]["embeddings"]["position_embedding"]["embedding"]).max(axis=1)
    )
    assert reached.tolist() == list(range(max(np.concatenate(LENGTHS))))


def test_no_gradient_flows_from_one_text_to_another(make, bert_config):
    """The gradient of the second texts' loss does not depend on the first texts, and depends on the
    second.
    """
    model, params = make(bert_config)
    noise_D = np.random.default_rng(2).standard_normal(bert_config.width).astype(np.float32)

    @jax.jit
    @jax.grad
    def compute_gradients(params, tokens_BL):
        states_BLD, _ = model.apply(
            {"params": params},
            tokens_BL,
            PACKED["attention_mask"],
            segment_ids=PACKED["segment_ids"],
            method="encode",
        )
        return jnp.where(
            (PACKED["segment_ids"] == 2)[..., None], jnp.sin(states_BLD * noise_D), 0
        ).sum()

    before = jax.device_get(compute_gradients(params, PACKED["token_ids"]))
    for number, moves in ((1, False), (2, True)):
        tokens_BL = np.where(
            PACKED["segment_ids"] == number, (PACKED["token_ids"] + 7) % 50, PACKED["token_ids"]
        )
        after = jax.device_get(compute_gradients(params, tokens_BL))
        moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, after)
        assert max(jax.tree.leaves(moved)) > 1e-2 if moves else max(jax.tree.leaves(moved)) < 1e-5
