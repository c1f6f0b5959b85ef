"""FLOPs counted from the program against the published estimate: 6 per parameter and token, plus
attention and head.
"""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from data.objectives import SpanCorruption
from models.layers.block_sparse import SparsePattern
from models.layers.masks import make_causal_mask
from models.layers.ops import attend
from pretrain.config import load
from pretrain.kernels.pair_scopes import name_visible_pairs
from pretrain.training import flops


def test_a_scan_counts_as_often_as_it_runs():
    w = jnp.ones((8, 8))

    def scan_products(x):
        return jax.lax.scan(lambda x, _: (x @ w, None), x, length=5)[0]

    assert flops.count_flops(jax.make_jaxpr(scan_products)(jnp.ones((4, 8)))) == 5 * 2 * 4 * 8 * 8


def test_the_dearer_branch_counts():
    w = jnp.ones((8, 8))

    def multiply_either(x):
        return jax.lax.cond(x.sum() > 0, lambda x: x @ w @ w, lambda x: x @ w, x)

    assert flops.count_flops(jax.make_jaxpr(multiply_either)(jnp.ones((4, 8)))) == 2 * 2 * 4 * 8 * 8


@pytest.mark.held_by(2)
@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("remat", [True, False])
def test_bert_needs_six_flops_a_weight_and_token(scan, remat):
    run = load("bert_tiny", ["train.microbatches=2", "data.batch_size=8"])
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, scan=scan, remat=remat))
    c, objective = run.model, run.data.objective
    B, L, P, D = 8, objective.length, objective.max_predictions, c.width
    layers = c.depth * (4 * D * D + 2 * D * c.mlp)
    expected = 6 * B * L * layers  # the encoder's kernels
    expected += 12 * c.depth * B * L * L * D  # scores and weighted sums of values
    expected += 6 * B * P * D * (c.vocab + D)  # the masked-LM head
    expected += (
        6 * B * L * D * c.segments - 2 * B * L * D * c.segments
    )  # one-hot token types: no gradient to the ids
    assert flops.count_step_flops(run).all_pairs == pytest.approx(expected, rel=0.01)


@pytest.mark.held_by(2)
@pytest.mark.parametrize("kind", ["strided", "fixed"])
@pytest.mark.parametrize("part", ["first", "second", "both"])
def test_a_sparse_pattern_counts_the_pairs_of_its_blocks(kind, part):
    """21 positions in blocks of 4; 2 products of 2 FLOPs for each pair, head and feature."""
    mask = make_causal_mask().replace(pattern=SparsePattern(kind, 4, 2, part=part))
    x = jnp.ones((1, 21, 3, 5))
    jaxpr = jax.make_jaxpr(lambda x: name_visible_pairs(attend)(x, x, x, mask=mask))(x)
    near, far = {"strided": (8, 6), "fixed": (4, 12)}[kind]
    keys = {"first": near, "both": near + far, "second": far if kind == "strided" else near + far}
    assert flops.count_flops(jaxpr) == 24 * keys[part] * 2 * 2 * 3 * 5
    visible = int(mask.make_dense(21, 21).sum())
    assert flops.count_flops(jaxpr, visible_only=True) == visible * 2 * 2 * 3 * 5


@pytest.mark.parametrize(("heads", "fill"), [(128, 1), (64, 2), (96, 4 / 3), (130, 256 / 130)])
def test_small_heads_leave_a_matrix_unit_partly_empty(heads, fill):
    """Scores sum over the size of a head, the weighted values have as many columns."""
    x = jax.ShapeDtypeStruct((3, 256, 5, heads), jnp.float32)
    jaxpr = jax.make_jaxpr(attend)(x, x, x)
    needed = 2 * 2 * 3 * 5 * 256 * 256 * heads
    assert flops.count_flops(jaxpr) == needed
    assert flops.count_flops(jaxpr, matrix_unit=128) == pytest.approx(fill * needed)


def test_products_with_a_vector_leave_the_matrix_unit_alone():
    x = jnp.ones((3, 5, 64))
    sums = jax.make_jaxpr(lambda x: jnp.einsum("bld,bld->bl", x, x))(x)
    assert flops.count_flops(sums, matrix_unit=128) == flops.count_flops(sums) == 2 * 3 * 5 * 64
    scores = jax.make_jaxpr(lambda x: jnp.einsum("bld,d->bl", x, x[0, 0]))(x)
    assert flops.count_flops(scores, matrix_unit=128) == 2 * 3 * 5 * 64


def test_an_unknown_accelerator_has_no_peak():
    class Device:
        platform, device_kind = "tpu", "TPU v99"

    assert flops.get_peak_flops(Device, "bfloat16") is None
    Device.device_kind = "TPU v4"
    assert flops.get_peak_flops(Device, "bfloat16") == 275e12
    assert flops.measure_matmul_rate("float32", size=64, seconds=0.01) > 1e6


def test_recomputed_logits_do_not_count(runs):
    """80,000 tokens and 29 targets a row are scored in two chunks, whose logits are computed twice;
    a quarter of them in one.
    """
    run = runs["t5"]
    run = dataclasses.replace(
        run, data=dataclasses.replace(run.data, objective=SpanCorruption(inputs=128))
    )
    small, middle, large = (
        flops.count_step_flops(
            dataclasses.replace(run, model=dataclasses.replace(run.model, vocab=vocab))
        ).all_pairs
        for vocab in (20_000, 40_000, 80_000)
    )
    assert large - middle == 2 * (middle - small)


@pytest.mark.held_by("transformer_xl")
@pytest.mark.parametrize("name", ["transformer_xl", "bert", "t5"])
def test_a_batch_between_two_others_is_counted_without_a_trace(runs, name):
    """Transformer-XL projects its positions once for all rows of a batch.

    A product of BERT's sentence head, 0.02 % of the step, is no matrix product in a small batch.
    """
    sizes = [
        dataclasses.replace(runs[name], data=dataclasses.replace(runs[name].data, batch_size=size))
        for size in (4, 8, 24)
    ]
    found = flops.count_phase_flops(sizes)
    expected = [flops.count_step_flops(run) for run in sizes]
    assert found[::2] == expected[::2] and found[0] < found[1] < found[2]
    assert found[1] == (pytest.approx(expected[1], rel=3e-4) if name == "bert" else expected[1])
