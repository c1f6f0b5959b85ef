"""The logits of a large vocabulary are never all in memory, and the sums over them are the same."""

import math
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.objectives import OBJECTIVES
from pretrain.config import load
from pretrain.settings.overrides import ConfigError
from pretrain.training.cross_entropy import (
    cross_entropy,
    take_scores_on_gpu,
    token_cross_entropy,
)
from pretrain.training.evaluation import score_sums, summarize_totals
from pretrain.training.losses import LossOptions, find_loss
from pretrain.training.losses.loss import ScoreTokens
from pretrain.training.program import choose_scores_at_once
from pretrain.training.state import THREEFRY_KERNEL, initialize_state

pytestmark = pytest.mark.fast


def make_problem(B=2, T=13, D=8, V=50, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 4)
    y, table = jax.random.normal(keys[0], (B, T, D), dtype), jax.random.normal(keys[1], (V, D))
    return y, table, jax.random.randint(keys[2], (B, T), 0, V), jax.random.uniform(keys[3], (B, T))


def logits_of(table, dtype=jnp.float32):
    return lambda y: jnp.einsum(
        "btd,vd->btv", y, table.astype(dtype), preferred_element_type=jnp.float32
    )


@pytest.mark.parametrize(
    ("objective", "states"),
    [
        ("answer_span", jnp.zeros((2, 3, 2))),
        ("regression", jnp.zeros((2, 1))),
        (
            "bidirectional_lm",
            SimpleNamespace(forward_labels_BL=jnp.zeros((2, 3)), forward_scores=jnp.zeros((2, 3))),
        ),
    ],
)
def test_a_loss_without_smoothing_refuses_it(objective, states):
    compute_sums = find_loss(objective).compute_sums
    batch = dict.fromkeys(("attention_mask", "labels", "label_weights"), jnp.ones((2, 3)))
    with pytest.raises(ConfigError, match=r"train.label_smoothing=0.1: .*; give .*smoothing=0$"):
        compute_sums(states, ScoreTokens(jnp.asarray, label_smoothing=0.1), batch)


@pytest.mark.held_by(2)
@pytest.mark.slow
@pytest.mark.parametrize("scores", [1, 50, 110, 200, 10_000])
def test_parts_add_up_to_the_whole_and_so_do_gradients(scores):
    """13 positions in chunks of 13, 13, 7, 4 and all: 7 and 4 are padded."""
    y, table, targets, weights = make_problem()

    def compute_value(y, table, **how):
        nats, hits = token_cross_entropy(logits_of(table), y, targets, weights, **how)
        return nats, hits

    (nats, hits), grads = jax.value_and_grad(compute_value, argnums=(0, 1), has_aux=True)(
        y, table, max_scores=scores
    )
    (expected, right), exact = jax.value_and_grad(
        lambda y, t: cross_entropy(logits_of(t)(y), targets, weights), argnums=(0, 1), has_aux=True
    )(y, table)
    np.testing.assert_allclose(nats, expected, rtol=1e-6)
    np.testing.assert_allclose(hits, right, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), grads, exact)


@pytest.mark.held_by(1)
@pytest.mark.slow
@pytest.mark.parametrize("rows", [(1, 7), (7, 1), (1, 1), (2, 3)], ids=str)
def test_a_gradient_is_scattered_without_axes_of_size_1(rows):
    """For a TPU, whose compiler makes a comparison of such a scatter. The gradient is softmax -
    target, by NumPy.
    """
    _, _, targets, weights = make_problem(*rows)
    logits = jax.random.normal(jax.random.key(3), (*rows, 50))

    def compute_loss(logits):
        return cross_entropy(logits, targets, weights)[0]

    powers = np.exp(np.asarray(logits, np.float64))
    expected = powers / powers.sum(-1, keepdims=True) - np.eye(50)[targets]
    grad = jax.grad(compute_loss)(logits)
    np.testing.assert_allclose(grad, expected * weights[..., None], atol=1e-6)
    traced = jax.jit(jax.grad(compute_loss)).trace(logits)
    text = traced.lower(lowering_platforms=("tpu",)).as_text()
    scatter = text[text.index("stablehlo.scatter") :]
    (result,) = re.findall(r"-> tensor<([\dx]+)xf32>", scatter.partition("}) : ")[2])[:1]
    assert result == "x".join([*(str(size) for size in rows if size > 1), "50"])


@pytest.mark.held_by(1)
@pytest.mark.slow
@pytest.mark.parametrize("rows", [(2, 13), (1, 13)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_scores_on_a_gpu_have_a_gradient_without_a_scatter(rows, smoothing):
    """The loss and the gradients are the same, of targets outside the vocabulary too."""
    y, table, targets, weights = make_problem(*rows)
    targets = targets.at[0, 3].set(-100).at[0, 5].set(50)

    def compute_value(y, table, **options):
        return token_cross_entropy(
            logits_of(table), y, targets, weights, max_scores=200, smoothing=smoothing, **options
        )

    compute = jax.value_and_grad(compute_value, argnums=(0, 1), has_aux=True)
    one, other = compute(y, table, take=take_scores_on_gpu), compute(y, table)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), one, other)
    for options, scatters in (({"take": take_scores_on_gpu}, False), ({}, True)):
        traced = jax.jit(lambda y, table: compute(y, table, **options)).trace(y, table)  # noqa: B023
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
        assert ("stablehlo.scatter" in text) == scatters


@pytest.mark.parametrize("scores", [1 << 30, 4])
def test_a_loss_takes_scores_as_its_options_say(scores):
    y, table, targets, weights = make_problem(B=1, T=3, V=4)
    loss = find_loss("span_corruption")._replace(input_keys=("x",))
    batch = {"x": y, "labels": targets, "label_weights": weights}
    options = LossOptions(scores_at_once=scores, take=lambda scores_V, ids: scores_V.max(axis=-1))
    found = loss.sum_batch(Table(), {"table": table}, batch, options=options)
    logits = np.asarray(y) @ np.asarray(table).T
    nats = np.log(np.exp(logits).sum(-1)) - logits.max(-1)
    np.testing.assert_allclose(found["span_corruption"], (nats * weights).sum(), rtol=1e-5)


@pytest.mark.parametrize("scores", [110, 10_000])
@pytest.mark.slow
def test_smoothed_targets(scores):
    """Szegedy et al. 2016, section 7: the cross-entropy with (1 - e) of the target and e / V of
    every token, by NumPy, and its gradient.
    """
    y, table, targets, weights = make_problem()

    def compute_value(y, table, smoothing=0.1):
        return token_cross_entropy(
            logits_of(table), y, targets, weights, max_scores=scores, smoothing=smoothing
        )

    (nats, hits), (d_y, d_table) = jax.value_and_grad(compute_value, argnums=(0, 1), has_aux=True)(
        y, table
    )
    logits = np.einsum("btd,vd->btv", np.asarray(y, np.float64), table)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    q = 0.9 * np.eye(50)[np.asarray(targets)] + 0.1 / 50
    np.testing.assert_allclose(nats, -(q * np.log(p) * weights[..., None]).sum(), rtol=1e-5)
    d = (p - q) * weights[..., None]
    np.testing.assert_allclose(d_y, d @ table, atol=1e-5)
    np.testing.assert_allclose(d_table, np.einsum("btv,btd->vd", d, y), atol=1e-5)
    np.testing.assert_array_equal(hits, compute_value(y, table, smoothing=0.0)[1])
    assert abs(nats - compute_value(y, table, smoothing=0.0)[0]) > 1


class Table:
    """A model with a token table only: `states` are its input, `logits` their products with the
    table.
    """

    collections, logits_method = (), "compute_logits"

    def apply(self, variables, x, method, **kw):
        table = variables["params"]["table"]
        return (
            x.astype(table.dtype)
            if method == "compute_states"
            else logits_of(table, table.dtype)(x)
        )


def test_gradients_add_up_in_float32():
    """4,096 chunks of one target: each is rounded to bfloat16 but not their sum, which would stop
    growing at 256 times a chunk.
    """
    y, table, _, weights = make_problem(B=1, T=4096, V=4)
    loss = find_loss("span_corruption")._replace(input_keys=("x",))
    batch = {"x": jnp.abs(y), "labels": jnp.zeros((1, 4096), jnp.int32), "label_weights": weights}

    def compute_gradient(compute, scores):
        def compute_sums(params):
            options = LossOptions(compute_dtype=compute, scores_at_once=scores)
            terms = loss.sum_batch(Table(), params, batch, options=options)
            return terms["span_corruption"]

        return jax.jit(jax.grad(compute_sums))({"table": table})["table"]

    exact = compute_gradient("float32", 1 << 30)
    assert jnp.abs(compute_gradient("bfloat16", 4) - exact).max() < 0.004 * jnp.abs(exact).max()


def test_a_mean_of_bfloat16_states_scales_their_gradient_exactly():
    """1 / total is float32: 1 / 3 in bfloat16 is 0.2 % more, in the gradient of every layer below.
    Each gradient is rounded to bfloat16, and the errors of 65,536 of them average out.
    """
    y, table, targets, weights = make_problem(T=512, D=64, dtype=jnp.bfloat16)

    def compute_gradient(y, scores):
        def compute_mean(y):
            logits = logits_of(table, y.dtype)
            return token_cross_entropy(logits, y, targets, weights, max_scores=scores)[0] / 3

        return np.asarray(jax.jit(jax.grad(compute_mean))(y), np.float64)

    exact = compute_gradient(y.astype(jnp.float32), 1 << 30)
    for scores in (1 << 30, 2048):
        ratio = (compute_gradient(y, scores) * exact).sum() / (exact**2).sum()
        assert abs(ratio - 1) < 2e-4, (scores, ratio)


@pytest.mark.parametrize("name", ["tagging", "classification"])
def test_class_weights(name):
    """The sum of w(y) * -log p(y) over the sum of w(y), by NumPy; the accuracy is unweighted. Sums
    of microbatches add up.
    """
    rng, loss, targets = (
        np.random.default_rng(0),
        find_loss(name),
        (6, 9) if name == "tagging" else (6,),
    )
    states, labels, weight_C = (
        rng.normal(size=(*targets, 3)).astype(np.float32),
        rng.integers(0, 3, targets),
        np.array([0.5, 2, 7]),
    )
    asked = (rng.random(targets) < 0.6).astype(np.float32)
    batch = {
        "labels": labels.astype(np.int32),
        "label_weights": (weight_C[labels] * asked).astype(np.float32),
    }
    batch |= (
        {"word_weights": asked, "row_weights": np.ones(6, np.float32)}
        if name == "tagging"
        else {"row_weights": asked}
    )

    @jax.jit
    def compute_sums(states, batch):
        return loss.compute_sums(states, ScoreTokens(None), batch), loss.sum_weights(batch)

    halves = [
        compute_sums(states[part], {key: array[part] for key, array in batch.items()})
        for part in (slice(3), slice(3, None))
    ]
    whole, totals = compute_sums(states, batch)
    logs = np.take_along_axis(
        states - np.log(np.exp(states).sum(-1, keepdims=True)), labels[..., None], -1
    )[..., 0]
    w = weight_C[labels] * asked
    np.testing.assert_allclose(whole[name] / totals[name], -(w * logs).sum() / w.sum(), rtol=1e-5)
    right = ((states.argmax(-1) == labels) * asked).sum() / asked.sum()
    np.testing.assert_allclose(
        whole[f"{name}_accuracy"] / totals[f"{name}_accuracy"], right, rtol=1e-6
    )
    for one, other, expected in zip(*halves, (whole, totals)):
        jax.tree.map(
            lambda a, b, both: np.testing.assert_allclose(a + b, both, rtol=1e-5),
            one,
            other,
            expected,
        )


def test_memory_is_that_of_a_part():
    y, table, targets, weights = make_problem(B=1, T=512, D=16, V=8192)

    def bytes_of(scores):
        def compute_value(y, table):
            return token_cross_entropy(logits_of(table), y, targets, weights, max_scores=scores)[0]

        return (
            jax.jit(jax.grad(compute_value, argnums=(0, 1)))
            .lower(y, table)
            .compile()
            .memory_analysis()
            .temp_size_in_bytes
        )

    whole = 512 * 8192 * 4
    assert bytes_of(1 << 30) > whole
    assert bytes_of(1 << 18) < whole / 4


def test_a_hit_is_a_target_that_alone_is_the_likeliest():
    """As argmax, except that equal scores count as no correct prediction, even if the target is
    first.
    """
    logits = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    targets = np.where(np.arange(6) % 2 == 0, logits.argmax(-1), 7).astype(np.int32)
    logits[4] = 0.5
    targets[4] = 0
    hits = [float(cross_entropy(logits[i], targets[i], np.float32(1))[1]) for i in range(6)]
    assert (
        hits == [float(logits[i].argmax() == targets[i] and i != 4) for i in range(6)]
        and sum(hits) >= 2
    )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_divides_a_sum_is_0_in_rows_that_fill_up_a_batch(name):
    """`Stream.build_evaluation_batch` sets the batch keys to 0 that end in `weights`."""
    assert all(key.endswith("weights") for key in find_loss(name).weight_keys.values())


def test_terms_have_the_weights_of_their_papers():
    """ELECTRA: lambda is 50 (Clark et al. 2020, appendix A). DistilBERT: 2, 5 and 1, as its
    authors' code was run. ELMo: the mean of both directions, as its authors' code. DeiT: the mean
    of labels and a teacher's classes (Touvron et al. 2021, equation 3). All others: 1.
    """
    published = {"replaced_token": 50.0, "distillation": 5.0}
    published |= {"forward_lm": 0.5, "backward_lm": 0.5}
    losses = {name: find_loss(name) for name in OBJECTIVES}
    weights = {
        (name, term): loss.loss_weights.get(term, 1.0)
        for name, loss in losses.items()
        for term in loss.loss_terms
    }
    assert weights.pop(("distillation", "masked_lm")) == 2.0
    for term in ("image_classification", "distillation"):
        assert weights.pop(("image_distillation", term)) == 0.5
    for (name, term), weight in weights.items():
        assert weight == published.get(term, 1.0), (name, term)


def test_labels_of_rows_are_smoothed():
    """-sum_c q_c log p_c, where q has the weight of the label and a share of all (Szegedy 2016)."""
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(6, 4)).astype(np.float32), rng.integers(0, 4, 6)
    weights = np.array([1, 1, 2, 1, 0.5, 0], np.float32)
    batch = {"labels": labels, "label_weights": weights, "row_weights": np.ones(6, np.float32)}
    log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    for smoothing in (0.0, 0.2):
        soft = (1 - smoothing) * np.eye(4)[labels] + smoothing / 4
        sums = find_loss("classification").compute_sums(
            jnp.asarray(scores),
            ScoreTokens(lambda x: x, 1.0, smoothing),
            jax.tree.map(jnp.asarray, batch),
        )
        expected = -(weights[:, None] * soft * log_p).sum()
        np.testing.assert_allclose(sums["classification"], expected, rtol=1e-5)


def test_labels_of_tags_are_smoothed():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(2, 5, 4)).astype(np.float32)
    labels = rng.integers(0, 4, (2, 5)).astype(np.int32)
    weights = rng.choice([0.0, 1.0, 2.5], (2, 5)).astype(np.float32)
    batch = {"labels": labels, "label_weights": weights, "word_weights": (weights > 0).astype("f4")}
    log_p = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    sums = find_loss("tagging").compute_sums(
        jnp.asarray(scores), ScoreTokens(lambda x: x, 1.0, 0.2), jax.tree.map(jnp.asarray, batch)
    )
    soft = 0.8 * np.eye(4)[labels] + 0.2 / 4
    np.testing.assert_allclose(
        sums["tagging"], -(weights[..., None] * soft * log_p).sum(), rtol=1e-5
    )
    hits = ((scores.argmax(-1) == labels) & (weights > 0)).sum()
    assert float(sums["tagging_accuracy"]) == hits


def test_targets_are_counted_whatever_the_weights_of_their_classes():
    weights = {"tagging": 2.5, "tagging_accuracy": 10.0}
    sums = {"tagging": 5.0, "tagging_accuracy": 7.0}
    scores = summarize_totals(find_loss("tagging"), {"all": (sums, weights)}, {})
    assert scores["targets"] == 10.0 and scores["tagging"] == 2.0


def test_the_perplexity_is_of_all_predicted_tokens():
    """Of both directions, and without a term on pairs of segments."""
    sums = {"forward_lm": 10.0, "backward_lm": 30.0}
    weights = {"forward_lm": 10.0, "backward_lm": 15.0}
    scores = score_sums(find_loss("bidirectional_lm"), sums, weights)
    assert scores["perplexity"] == pytest.approx(math.exp(40 / 25))
    sums, weights = {"masked_lm": 10.0, "next_sentence": 4.0}, {"masked_lm": 5.0}
    scores = score_sums(find_loss("sentence_pair"), sums, weights | {"next_sentence": 8.0})
    assert scores["perplexity"] == pytest.approx(math.exp(2))
    weights = dict.fromkeys(sums, 0.0)  # a split without targets
    assert math.isnan(score_sums(find_loss("sentence_pair"), sums, weights)["perplexity"])


@pytest.mark.parametrize(
    ("kind", "sizes", "microbatches", "expected"),
    [
        ("cpu", {"data": 16}, 1, 3 << 20),
        ("NVIDIA H100 80GB HBM3", {"data": 16}, 1, 2**28 / 4),
        ("NVIDIA H100 80GB HBM3", {}, 1, 2**28 / 64),
        ("TPU v5", {"data": 16}, 1, 2**28 / 4),  # 64 rows: 4 of a device
        ("TPU v5", {"data": 2, "fsdp": 2}, 4, 2**28 / 4),
        ("TPU v5", {"data": 4, "model": 4}, 1, 4 * 2**28 / 16),
        ("TPU v5", {"data": 4, "sequence": 2}, 1, 2 * 2**28 / 16),
        ("TPU v5", {}, 1, 2**28 / 64),
        ("TPU v5 lite", {"data": 16}, 1, (24 << 20) / 4),
        ("TPU v5 lite", {"data": 4}, 1, 3 << 20),  # no fewer than elsewhere
    ],
)
def test_an_accelerator_holds_a_number_of_scores_and_a_cpu_a_number_for_each_row(
    kind, sizes, microbatches, expected
):
    run = load("bert_tiny", ["data.batch_size=64", f"train.microbatches={microbatches}"])
    shape = dict.fromkeys(("data", "fsdp", "sequence", "model"), 1) | sizes
    platform = {"cpu": "cpu", "TPU": "tpu", "NVIDIA": "gpu"}[kind.split()[0]]
    device = SimpleNamespace(platform=platform, device_kind=kind)
    mesh = SimpleNamespace(devices=np.array([device]), shape=shape, size=math.prod(shape.values()))
    params = {"table": jax.ShapeDtypeStruct((run.model.vocab, 8), "float32")}
    assert choose_scores_at_once(run, mesh, params) == expected


@pytest.mark.parametrize(
    ("vocab", "width", "model", "expected"),
    [
        (50265, 1001, 1, 24 << 20),  # 50,315,265 numbers
        (50265, 1002, 1, 2**28),  # 50,365,530, more than 48 x 2^20
        (50265, 1002, 2, 2 * (24 << 20)),  # half of them on each device
        (50264, 4096, 1, 24 << 20),  # a matrix of something else
    ],
)
def test_a_matrix_of_more_numbers_than_a_chip_holds_logits_takes_them_in_hbm(
    vocab, width, model, expected
):
    run = load("roberta_base", ["data.batch_size=1", "train.microbatches=1"])
    shape = {"data": 1, "fsdp": 1, "sequence": 1, "model": model}
    device = SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
    mesh = SimpleNamespace(devices=np.array([device]), shape=shape, size=model)
    params = {"table": jax.ShapeDtypeStruct((vocab, width), "float32")}
    assert choose_scores_at_once(run, mesh, params) == expected


@pytest.mark.parametrize(
    ("platform", "size", "expected"), [("gpu", 1, True), ("gpu", 2, False), ("tpu", 1, False)]
)
def test_a_kernel_draws_the_parameters_on_one_gpu(platform, size, expected):
    devices = np.array([SimpleNamespace(platform=platform)] * size)
    used = []

    def init():
        used.append(getattr(jax.config, THREEFRY_KERNEL))
        return jnp.zeros(())

    initialize_state(init, SimpleNamespace(size=size, devices=devices), None)
    assert used == [expected] and getattr(jax.config, THREEFRY_KERNEL) is False
