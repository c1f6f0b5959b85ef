"""One step is the same on every mesh and in any number of micro-batches: parameters are compared,
not only losses.
"""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from models import build
from models.layers.ops import leave_unchanged
from pretrain.config import Adafactor, Mesh, StableAdamW
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.gradient_exchange import (
    cast_params,
    find_exchange_obstacle,
    make_gradient_exchange,
)
from pretrain.mesh.sharding import (
    format_path,
    make_batch_sharding,
    make_gather,
    make_mesh,
    make_replicated_sharding,
    make_state_shardings,
)
from pretrain.training.losses import LossOptions, find_loss
from pretrain.training.optimizers import allow_promotion, make_optimizer
from pretrain.training.schedules import make_learning_rate
from pretrain.training.state import init_state
from pretrain.training.step import (
    accumulate_gradients,
    make_evaluation_fn,
    make_gradient,
    make_train_step,
)

MESHES = (
    (1, 1, 1), (8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2), (1, 1, 1, 8), (1, 2, 2, 2),
)  # data, fsdp, model, sequence  # fmt: skip
# The cases of the suite. Other families run on the meshes of several axes; BERT runs there with
# dropout and with chunked logits, T5 with Adafactor. test_micro_batches_weigh_targets_not_rows takes
# 4 micro-batches on one device.
BERTS = ((8, 1, 1), (1, 8, 1), (1, 1, 1, 8))
T5S = ((1, 1, 8), (1, 2, 2, 2))


# With AdamW's usual epsilon of 1e-6, gradients that are rounding noise move a parameter by as much
# as they differ between two orders of summation, divided by epsilon. With 1e-4 parameters move as far,
# 0.02 in three steps, and differ by 2.4e-7 at most.
EPSILON, TOLERANCE = 1e-4, 2e-6
# Streams that are computed from later ones are rounded: 7e-6 on each of three meshes, and
# 1e-7 if they are kept.
INVERTED = 2e-5


def with_epsilon(run):
    if not hasattr(run.optimizer, "epsilon"):
        return run
    return dataclasses.replace(run, optimizer=dataclasses.replace(run.optimizer, epsilon=EPSILON))


@functools.cache
def first_state(run):
    """Return the state before the first step, on the host."""
    optimizer = make_optimizer(run.optimizer, run.train.steps)
    init = partial(init_state, build(run.model), run.data.objective, optimizer, run.train.seed)
    return jax.device_get(jax.jit(init)())


def three_steps(
    run, random_batch, sizes=(1, 1, 1), microbatches=1, compute="float32", same=False, **options
):
    """Return (state on the host, metrics of the last step) after three updates.

    Gradients cross as `make_program` has them cross on the mesh.
    """
    run = with_epsilon(run)
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    is_exchanged = find_exchange_obstacle(first_state(run).params, mesh, compute) is None
    model = build(run.model, **make_model_hooks(mesh, [], is_exchanged))
    optimizer, rate = (
        make_optimizer(run.optimizer, run.train.steps),
        make_learning_rate(run.optimizer, run.train.steps),
    )
    init = partial(init_state, build(run.model), run.data.objective, optimizer, run.train.seed)
    placed = make_state_shardings(jax.eval_shape(init), mesh)
    step = make_train_step(
        model,
        find_loss(run.data.objective.name),
        optimizer,
        rate,
        seed=0,
        microbatches=microbatches,
        options=LossOptions(
            compute_dtype=compute,
            gather=leave_unchanged if is_exchanged else make_gather(mesh),
            label_smoothing=run.train.label_smoothing,
            **options,
        ),
        exchange=make_gradient_exchange(mesh, compute) if is_exchanged else leave_unchanged,
    )
    rows = make_batch_sharding(mesh)
    step = jax.jit(
        step,
        in_shardings=(placed, rows),
        out_shardings=(placed, make_replicated_sharding(mesh)),
        donate_argnums=0,
    )
    with jax.set_mesh(mesh):
        state = jax.device_put(first_state(run), placed, may_alias=False)
        for seed in range(3):
            state, metrics = step(
                state, jax.device_put(random_batch(run, 0 if same else seed), rows)
            )
        return jax.device_get(state), jax.device_get(metrics)


def assert_same_parameters(one, other, tolerance):
    for (keys, a), b in zip(
        jax.tree_util.tree_leaves_with_path(one.params), jax.tree.leaves(other.params), strict=True
    ):
        if format_path(keys).endswith("key/bias"):
            # softmax does not depend on it: its true gradient is 0, and Adam scales the noise
            # instead
            continue
        np.testing.assert_allclose(a, b, atol=tolerance, err_msg=format_path(keys))


@pytest.fixture(scope="module")
def on_one_device():
    return {}


CASES = [("bert_pairs", sizes, 4) for sizes in BERTS] + [("t5", sizes, 4) for sizes in T5S]
CASES += [
    ("bert_pairs", (1, 1, 1), 1),
    ("bert_unrolled", (2, 2, 2), 4),
    ("t5_gated", (2, 2, 2), 4),
]
CASES += [
    ("transformer", (1, 2, 2, 2), 4),
    ("seq2seq_lstm", (1, 2, 2, 2), 4),
    ("seq2seq_lstm_fed", (8, 1, 1), 1),
    ("electra", (2, 2, 2), 4),
]
CASES += [
    ("gpt3", (1, 2, 2, 2), 4),
    ("sparse_transformer", (1, 2, 2, 2), 4),
    ("music_transformer", (1, 2, 2, 2), 4),
    # its rotations are drawn for each micro-batch
    ("reformer", (2, 2, 2), 1),
    ("modernbert", (1, 2, 2, 2), 4),
    ("modernbert_decoder", (8, 1, 1), 1),
    ("eurobert_one_key", (2, 2, 2), 4),
    ("albert", (1, 2, 2, 2), 4),
    ("bert_packed", (1, 2, 2, 2), 4),
    ("linformer", (2, 2, 2), 4),
    # words are drawn for each micro-batch
    ("deep_averaging", (2, 2, 2), 1),
    ("textcnn", (1, 2, 2, 2), 4),
    ("recurrent_encoder", (2, 2, 2), 4),
    ("decoder_classifier", (1, 2, 2, 2), 4),
]
# CLOZE_BOARD=whole tries these too.
MORE = [
    (name, sizes, 1)
    for name in ("bert_pairs", "t5")
    for sizes in MESHES
    if (name, sizes, 1) not in CASES
]
MORE += [
    ("bert_unrolled", (1, 1, 1), 4),
    ("t5_gated", (1, 1, 1), 4),
    ("t5gemma", (1, 2, 2, 2), 4),
    ("gpt3", (2, 2, 2), 1),
    ("gpt_bert", (1, 2, 2, 2), 4),
    ("eurobert", (1, 2, 2, 2), 4),
    ("deberta_v3", (1, 2, 2, 2), 4),
    ("roberta", (1, 2, 2, 2), 4),
    ("bart", (1, 2, 2, 2), 4),
    ("distilbert", (2, 2, 2), 4),
    ("gpt", (2, 2, 2), 4),
    ("reformer_kept", (8, 1, 1), 1),
    ("albert", (2, 2, 2), 4),
    ("linformer_unshared", (1, 2, 2, 2), 4),
]
MORE += [
    ("classifier", (2, 2, 2), 4),
    ("elman", (1, 2, 2, 2), 4),
    *(("bert_pairs", sizes, 4) for sizes in MESHES if sizes not in BERTS),
    *(("t5", sizes, 4) for sizes in MESHES if sizes not in T5S),
]


@pytest.mark.held_by("bert_pairs-(8, 1, 1)-4", "bert_pairs-(1, 1, 1, 8)-4", "t5-(1, 2, 2, 2)-4")
@pytest.mark.parametrize(("name", "sizes", "microbatches"), CASES + MORE, ids=str)
def test_parameters_agree_on_every_mesh(
    request, runs, random_batch, on_one_device, name, sizes, microbatches
):
    if (name, sizes, microbatches) in MORE:
        request.getfixturevalue("whole")
    if name not in on_one_device:
        on_one_device[name] = three_steps(runs[name], random_batch)
    expected, metrics = on_one_device[name]
    if (sizes, microbatches) == ((1, 1, 1), 1):
        state, seen = three_steps(runs[name], random_batch)  # the same program again: the same bits
        assert_same_parameters(expected, state, 0.0)
    else:
        state, seen = three_steps(runs[name], random_batch, sizes, microbatches)
        assert_same_parameters(expected, state, INVERTED if name == "reformer" else TOLERANCE)
    np.testing.assert_allclose(seen["loss"], metrics["loss"], rtol=1e-5)
    assert state.step == 3


PARTED = [("t5", (1, 1, 1)), ("t5_gated", (2, 2, 2)), ("bert_pairs", (1, 2, 2, 2))]
MORE_PARTED = [("t5", (2, 2, 2)), ("transformer", (2, 2, 2))]  # as MORE


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("name", "sizes"), PARTED + MORE_PARTED, ids=str)
def test_scoring_words_in_parts_changes_nothing(
    request, runs, random_batch, on_one_device, name, sizes
):
    """128 tokens and 300 logits a chunk: three chunks of BERT's 6 masked tokens, six of T5's
    targets, the last one padded.
    """
    if (name, sizes) in MORE_PARTED:
        request.getfixturevalue("whole")
    if name not in on_one_device:
        on_one_device[name] = three_steps(runs[name], random_batch)
    state, _ = three_steps(runs[name], random_batch, sizes, scores_at_once=300)
    assert_same_parameters(on_one_device[name][0], state, TOLERANCE)


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("t5", Adafactor()), ("modernbert", StableAdamW(learning_rate=1e-3, warmup_steps=2))],
    ids=["adafactor", "stableadamw"],
)
def test_another_optimizer_agrees_on_meshes(runs, random_batch, name, optimizer):
    run = dataclasses.replace(runs[name], optimizer=optimizer)
    expected, _ = three_steps(run, random_batch)
    assert_same_parameters(expected, three_steps(run, random_batch, (2, 2, 2), 4)[0], TOLERANCE)


@pytest.mark.more  # test_gradient_exchange.py holds dropout on meshes
def test_dropout_is_the_same_on_every_mesh(runs, random_batch, on_one_device):
    run = runs["bert_pairs"]
    if "bert_pairs" not in on_one_device:
        on_one_device["bert_pairs"] = three_steps(run, random_batch)
    without, _ = on_one_device["bert_pairs"]
    run = dataclasses.replace(
        run, model=dataclasses.replace(run.model, dropout=0.3, attention_dropout=0.3)
    )
    expected, _ = three_steps(run, random_batch)
    assert_same_parameters(expected, three_steps(run, random_batch, (2, 2, 2))[0], TOLERANCE)
    with pytest.raises(AssertionError):
        assert_same_parameters(expected, without, 100 * TOLERANCE)


@pytest.mark.held_by("(1, 2, 2, 2)")
@pytest.mark.parametrize("sizes", [(8, 1, 1), (1, 2, 2, 2)], ids=str)
def test_a_run_has_the_same_initial_parameters_on_every_mesh(runs, sizes):
    run, mesh = with_epsilon(runs["bert_pairs"]), make_mesh(Mesh(*sizes))
    expected = first_state(run)
    optimizer = make_optimizer(run.optimizer, run.train.steps)
    model = build(run.model, **make_model_hooks(mesh, []))
    init = partial(init_state, model, run.data.objective, optimizer, run.train.seed)
    placed = make_state_shardings(jax.eval_shape(init), mesh)
    with jax.set_mesh(mesh):
        found = jax.device_get(jax.jit(init, out_shardings=placed)())
    assert_same_parameters(expected, found, 0.0)


def test_state_is_spread_over_fsdp_and_model(runs, random_batch):
    """No device holds a whole large parameter, and the moments are sharded like their parameters."""
    run = runs["bert"]
    mesh = make_mesh(Mesh(1, 4, 2))
    optimizer = make_optimizer(run.optimizer, 10)
    abstract = jax.eval_shape(
        partial(init_state, build(run.model), run.data.objective, optimizer, 0)
    )
    placed = make_state_shardings(abstract, mesh)
    whole = sum(leaf.size for leaf in jax.tree.leaves(abstract))
    held = sum(
        int(np.prod(sharding.shard_shape(leaf.shape)))
        for leaf, sharding in zip(jax.tree.leaves(abstract), jax.tree.leaves(placed), strict=True)
    )
    assert held < whole / 5  # of 8: biases, norms and positions are replicated
    moments = [leaf.spec for leaf in jax.tree.leaves(placed.optimizer)]
    for sharding in jax.tree.leaves(placed.params):
        assert moments.count(sharding.spec) >= 2


def test_micro_batches_weigh_targets_not_rows(runs):
    """The gradient is sum / weight's over the whole batch, by an independent formula:
    jax.grad of one division.
    """
    run = runs["bert_pairs"]
    model, loss = build(run.model), find_loss("sentence_pair")
    state = jax.jit(partial(init_state, model, run.data.objective, optax.sgd(1.0), 0))()
    rng = np.random.default_rng(0)
    B, L, P = 8, 32, 6
    batch = {
        "token_ids": rng.integers(0, 128, (B, L)).astype(np.int32),
        "attention_mask": np.ones((B, L), bool),
        "token_type_ids": np.zeros((B, L), np.int32),
        "masked_positions": np.tile(np.arange(P, dtype=np.int32), (B, 1)),
        "labels": rng.integers(0, 128, (B, P)).astype(np.int32),
        "label_weights": (np.arange(P) < np.arange(1, B + 1)[:, None]).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, B).astype(np.int32),
        "next_sentence_weights": np.array([1, 0, 0, 0, 1, 1, 0, 1], np.float32),
    }

    def compute_whole_loss(params):
        logits, following = model.apply(
            {"params": params},
            batch["token_ids"],
            batch["attention_mask"],
            batch["token_type_ids"],
            batch["masked_positions"],
        )
        words = -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["labels"][..., None], -1)[
            ..., 0
        ]
        pairs = -jnp.take_along_axis(
            jax.nn.log_softmax(following), batch["next_sentence_labels"][..., None], -1
        )[..., 0]
        weights, chosen = batch["label_weights"], batch["next_sentence_weights"]
        return (words * weights).sum() / weights.sum() + (pairs * chosen).sum() / chosen.sum()

    expected, grads = jax.jit(jax.value_and_grad(compute_whole_loss))(state.params)
    for microbatches in (1, 4):
        step = make_train_step(
            model,
            loss,
            allow_promotion(optax.sgd(1.0)),
            lambda n: 1.0,
            seed=0,
            microbatches=microbatches,
        )
        after, metrics = jax.jit(step)(state, batch)
        np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-5)
        assert metrics["tokens"] == B * L
        moved = jax.tree.map(lambda a, b: a - b, state.params, after.params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), moved, grads)


def test_gradients_of_bfloat16_microbatches_are_summed_in_float32(runs, random_batch):
    """The sum equals the sum of microbatches' own gradients in float64. Sums that were rounded to
    bfloat16 after each addition would differ by 2e-3.
    """
    run, microbatches = runs["bert_pairs"], 4
    model, loss = build(run.model), find_loss(run.data.objective.name)
    state = jax.jit(partial(init_state, model, run.data.objective, optax.sgd(1.0), 0))()
    batch = random_batch(run)
    compute = make_gradient(model, loss, LossOptions(compute_dtype="bfloat16"))
    totals = {name: jnp.maximum(w, 1.0) for name, w in loss.sum_weights(batch).items()}
    key = jax.random.key(0)
    arguments = (state.params, state.variables, batch, totals, key)
    summed, _ = jax.jit(partial(accumulate_gradients, compute, microbatches))(*arguments)
    assert {leaf.dtype for leaf in jax.tree.leaves(summed)} == {np.dtype("float32")}
    parts = []
    for i in range(microbatches):
        rows = jax.tree.map(lambda x, i=i: x[i::microbatches], batch)
        part_key = jax.random.fold_in(key, i)
        grads, _ = jax.jit(compute)(state.params, state.variables, rows, totals, part_key)
        parts.append(jax.tree.map(lambda x: np.asarray(x, np.float64), grads))
    exact = jax.tree.map(lambda *leaves: sum(leaves), *parts)

    def find_norm(tree):
        return np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))

    error = find_norm(jax.tree.map(lambda a, b: a - b, summed, exact)) / find_norm(exact)
    rounded = jax.tree.map(lambda *leaves: functools.reduce(add_in_bfloat16, leaves), *parts)
    rounding = find_norm(jax.tree.map(lambda a, b: a - b, rounded, exact)) / find_norm(exact)
    assert error < 2e-4 < 1e-3 < rounding


def add_in_bfloat16(a, b):
    return np.asarray(np.asarray(a, jnp.bfloat16) + np.asarray(b, jnp.bfloat16), np.float64)


@pytest.mark.more
def test_bfloat16_learns_and_keeps_float32_state(runs, random_batch):
    run = runs["t5"]
    state, metrics = three_steps(run, random_batch, compute="bfloat16", same=True)
    _, exact = three_steps(run, random_batch, same=True)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {np.dtype("float32")}
    assert abs(metrics["loss"] - exact["loss"]) < 0.05
    assert metrics["loss"] != exact["loss"]


def test_evaluation_is_the_loss_without_dropout(runs, random_batch):
    run = runs["bert_pairs"]
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, dropout=0.5))
    model, loss, batch = build(run.model), find_loss("sentence_pair"), random_batch(run)
    params = jax.jit(partial(init_state, model, run.data.objective, optax.sgd(0.0), 0))().params
    sums, weights, *_ = jax.jit(make_evaluation_fn(model, loss))(params, batch)
    again, *_ = jax.jit(make_evaluation_fn(model, loss))(params, batch)
    assert sums.keys() == weights.keys() == loss.weight_keys.keys()
    assert sums["masked_lm"] == again["masked_lm"]
    assert weights["masked_lm"] == batch["label_weights"].sum()
    assert 0 <= sums["next_sentence_accuracy"] <= weights["next_sentence"]
    np.testing.assert_allclose(sums["masked_lm"] / weights["masked_lm"], np.log(128), rtol=0.05)


def test_cast_reaches_every_parameter():
    assert cast_params({"a": jnp.ones(2)}, jnp.bfloat16)["a"].dtype == jnp.bfloat16
