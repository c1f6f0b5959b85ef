"""A kernel that replaces `attend` computes the same on a mesh, forward and backward; where it
cannot, `attend` is used and the reason is given.
"""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.block_sparse import SparsePattern
from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from pretrain.config import Mesh
from pretrain.kernels.attention.choice import (
    AttentionCall,
    AttentionRules,
    choose_kernel,
    choose_plain_attend,
    make_attend,
)
from pretrain.kernels.attention.cudnn_attention import (
    MAX_CALLS,
    attend_with_cudnn,
    distinguish_scale,
    find_cudnn_obstacle,
)
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.attention.splash import splash_attention
from pretrain.kernels.attention.splash.splash_attention import (
    attend_with_splash,
    find_splash_obstacle,
)
from pretrain.kernels.attention.splash.splash_patterns import count_pattern_blocks, order_keys
from pretrain.mesh.sharding import make_mesh
from pretrain.training import flops

pytestmark = pytest.mark.slow

B, L, H, K = 4, 256, 2, 8
LENGTHS = np.array([[L], [200], [1], [130]])
VALID = jnp.asarray(np.arange(L) < LENGTHS)
SEGMENTS = jnp.asarray(np.where(VALID, 1 + (np.arange(L) >= LENGTHS // 3), 0).astype(np.int32))
DROP = KeyedDropout(jnp.zeros(2, jnp.uint32), 0.1, ())


def draw_vectors(*shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def run_both(kernel, mask, M=L, **kw):
    """Return ((output, gradients) of the kernel, the same of `attend`), at the unmasked positions."""
    q, k, v = (
        draw_vectors(B, L, H, K),
        draw_vectors(B, M, H, K, seed=1),
        draw_vectors(B, M, H, K, seed=2),
    )
    there = VALID[..., None, None]  # padding may attend to anything
    weigh = draw_vectors(B, L, H, K, seed=3) * there

    def run_function(function):
        def compute_value(q, k, v):
            o = function(q, k, v, mask=mask, **kw)
            return (o * weigh).sum(), o * there

        (_, o), grads = jax.jit(jax.value_and_grad(compute_value, argnums=(0, 1, 2), has_aux=True))(
            q, k, v
        )
        return o, grads

    return run_function(kernel), run_function(attend)


MASKS = {
    "none": None,
    "padding": make_padding_mask(VALID),
    "causal": make_causal_mask(),
    "window, padding": make_causal_mask(VALID, window=70),
    "packed": make_causal_mask(VALID, SEGMENTS),
    "packed both ways": make_padding_mask(VALID, SEGMENTS),
    "window both ways": Mask(window=70),
    "packed, window both ways": make_padding_mask(VALID, SEGMENTS).replace(window=71),
}


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("name", "sizes"),
    [(name, (1, 2, 2, 2)) for name in MASKS]
    + [("padding", (8, 1, 1, 1)), ("packed", (1, 1, 4, 2))],
    ids=str,
)
@pytest.mark.usefixtures("promoting")
def test_splash_is_attend(name, sizes):
    """A batch of 4 rows cannot be sharded over 8 devices, so that mesh takes 4 of them. Over
    `model` 4, each head stays whole.
    """
    mesh = make_mesh(
        Mesh(*sizes) if sizes[0] < 8 else Mesh(4), jax.devices()[: 8 if sizes[0] < 8 else 4]
    )
    with jax.set_mesh(mesh):
        one, other = run_both(partial(attend_with_splash, mesh=mesh, interpret=True), MASKS[name])
    jax.tree.map(partial(np.testing.assert_allclose, atol=3e-5), one, other)


@pytest.mark.parametrize("sequence", [1, 2])
@pytest.mark.usefixtures("promoting")
def test_splash_leaves_out_the_blocks_outside_a_window_both_ways(monkeypatch, sequence):
    """With blocks of 128 in 512 positions, a query's window overlaps three blocks at most; the
    others are skipped.
    """
    monkeypatch.setattr(splash_attention, "MAX_BLOCK", 128)
    mesh = make_mesh(Mesh(1, 1, 1, sequence), jax.devices()[:sequence])
    q, k, v, do = (draw_vectors(1, 512, H, K, seed=seed) for seed in range(4))
    mask = make_padding_mask(jnp.arange(512)[None] < 500).replace(window=100)

    def run_function(function):
        @jax.jit
        def run(q, k, v, do):
            o, pull = jax.vjp(lambda q, k, v: function(q, k, v, mask=mask), q, k, v)
            return o[:, :500], pull(do.at[:, 500:].set(0))

        return run(q, k, v, do)

    with jax.set_mesh(mesh):
        splash = run_function(partial(attend_with_splash, mesh=mesh, interpret=True))
    jax.tree.map(partial(np.testing.assert_allclose, atol=3e-5), splash, run_function(attend))


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("pattern", "sizes", "packed"),
    [
        (SparsePattern("fixed", 32, 8, 2), (1, 2, 2, 2), False),
        (SparsePattern("fixed", 32, 8, 1), (1, 2, 2, 2), True),
        (SparsePattern("fixed", 32, 8, 2, "second"), (1, 1, 1, 1), False),
        (SparsePattern("fixed", 32, part="first"), (1, 1, 1, 1), True),
        (SparsePattern("strided", 32, part="first"), (1, 2, 2, 2), True),
    ],
    ids=str,
)
@pytest.mark.usefixtures("promoting")
def test_splash_takes_a_sparse_pattern(pattern, sizes, packed):
    """The same as in blocks; on a mesh the heads with different orders of keys are divided."""
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    own = (VALID, SEGMENTS) if packed else ()
    mask = make_causal_mask(*own).replace(pattern=pattern)
    with jax.set_mesh(mesh):
        one, other = run_both(partial(attend_with_splash, mesh=mesh, interpret=True), mask)
    jax.tree.map(partial(np.testing.assert_allclose, atol=3e-5), one, other)


def test_splash_skips_blocks_of_a_sparse_pattern():
    """At 2,048 positions in blocks of 128, a head with its summaries first computes fewer than 80
    blocks; in the order of the row it would compute all 136 of the causal triangle.
    """
    pattern = SparsePattern("fixed", 128, 32, 4)
    found = count_pattern_blocks(pattern, 2_048, 128, 128)
    squares = [
        pattern.is_visible(np.arange(2_048)[:, None], order_keys(pattern, 2_048, head), head)
        for head in range(4)
    ]
    blocks = [square.reshape(16, 128, 16, 128).any((1, 3)).sum() for square in squares]
    assert found == round(np.mean(blocks)) < 80
    assert sorted(order_keys(pattern, 2_048, 3).tolist()) == list(range(2_048))


@pytest.mark.usefixtures("promoting")
def test_splash_reads_memory_of_another_length_and_takes_a_scale():
    mesh = make_mesh(Mesh(1, 1, 1), jax.devices()[:1])
    mask = make_padding_mask(jnp.asarray(np.arange(128) < LENGTHS // 2 + 1))
    one, other = run_both(
        partial(attend_with_splash, mesh=mesh, interpret=True), mask, M=128, scale=1.0
    )
    jax.tree.map(partial(np.testing.assert_allclose, atol=3e-5), one, other)


@pytest.mark.usefixtures("promoting")
def test_splash_caps_scores():
    mesh = make_mesh(Mesh(1, 1, 1), jax.devices()[:1])
    splash = partial(attend_with_splash, mesh=mesh, interpret=True)
    one, other = run_both(splash, MASKS["window, padding"], soft_cap=0.7, scale=1.0)
    jax.tree.map(partial(np.testing.assert_allclose, atol=3e-5), one, other)


@pytest.mark.held_by(3)
@pytest.mark.parametrize("name", list(MASKS))
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.usefixtures("promoting")
def test_the_arguments_of_cudnn_compute_attend(name, biased):
    """The same call with XLA's implementation: masks become lengths, flags and windows. cuDNN
    itself needs a GPU.
    """
    mesh = make_mesh(Mesh(1, 1, 1), jax.devices()[:1])
    bias = draw_vectors(1, H, L, L, seed=5) if biased else None
    one, other = run_both(
        partial(attend_with_cudnn, mesh=mesh, implementation="xla"), MASKS[name], bias=bias
    )
    jax.tree.map(partial(np.testing.assert_allclose, atol=3e-5), one, other)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 2, 1, 2)], ids=str)
def test_flops_of_splash_are_its_nine_products(sizes):
    """2 matmuls forward, 3 for the gradient of q, 4 for k's and v's, where XLA's attention has
    2 and 4; and a product of o with its gradient.
    """
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    q = jax.ShapeDtypeStruct((B, L, H, K), jnp.float32)

    def make_gradient(function):
        return jax.grad(lambda q, k, v: function(q, k, v).sum(), argnums=(0, 1, 2))

    with jax.set_mesh(mesh):
        kernel = flops.count_flops(
            jax.make_jaxpr(make_gradient(partial(attend_with_splash, mesh=mesh)))(q, q, q)
        )
    assert kernel == 9 * 2 * B * L * L * H * K + 2 * B * L * H * K
    assert (
        flops.count_flops(jax.make_jaxpr(make_gradient(attend))(q, q, q))
        == 6 * 2 * B * L * L * H * K
    )


def make_shapes(B=8, L=256, M=256, H=4, K=64, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct((B, L, H, K), dtype), jax.ShapeDtypeStruct((B, M, H, K), dtype)


RANKED = Mask(ranks=(jnp.zeros((8, 256), jnp.int32), jnp.zeros((8, 256), jnp.int32)))


def find_reason(why_not, mask=None, bias=None, drop=None, sizes=(2, 2, 2), **kw):
    return why_not(*make_shapes(**kw), mask, bias, drop, make_mesh(Mesh(*sizes)))


def test_reasons_against_splash_are_reported():
    assert (
        find_reason(find_splash_obstacle)
        is find_reason(find_splash_obstacle, make_causal_mask(window=7))
        is None
    )
    assert find_reason(find_splash_obstacle, drop=DROP) == "cannot drop weights"
    assert "cannot add a bias" in find_reason(
        find_splash_obstacle, bias=draw_vectors(1, 4, 256, 256)
    )
    assert find_reason(find_splash_obstacle, Mask(window=7)) is None
    assert find_reason(find_splash_obstacle, RANKED) == "takes no ranks of the positions"
    assert "equal numbers of queries and keys, not for 256 and 128" in find_reason(
        find_splash_obstacle, Mask(window=7), M=128
    )
    fixed = make_causal_mask().replace(pattern=SparsePattern("fixed", 128, 32, 4))
    strided = fixed.replace(pattern=SparsePattern("strided", 128))
    assert find_reason(find_splash_obstacle, fixed) is None
    assert "no block of a strided pattern" in find_reason(find_splash_obstacle, strided)
    packed = fixed.replace(segment_ids=(SEGMENTS, SEGMENTS))
    assert "an order of keys that all heads share" in find_reason(find_splash_obstacle, packed)
    assert "an array of pairs" in find_reason(
        find_splash_obstacle, make_causal_mask().make_dense(256, 256)
    )
    assert "not 114 positions on 1 devices" in find_reason(find_splash_obstacle, L=114)
    assert "not 257 positions on 1 devices" in find_reason(find_splash_obstacle, M=257)
    assert "not 256 positions on 4 devices" in find_reason(find_splash_obstacle, sizes=(1, 2, 1, 4))
    assert "6 do not divide among 4" in find_reason(find_splash_obstacle, B=6)


def test_reasons_against_cudnn_are_reported():
    segments = jnp.zeros((8, 255), jnp.int32)
    packed, odd = Mask(segment_ids=(segments, segments)), dict(L=255, M=255)
    sparse = make_causal_mask().replace(pattern=SparsePattern("fixed", 128))
    assert find_reason(find_cudnn_obstacle, sparse) == "has no sparse patterns"
    assert find_reason(find_cudnn_obstacle, RANKED) == "takes no ranks of the positions"
    assert (
        find_reason(find_cudnn_obstacle)
        is find_reason(find_cudnn_obstacle, make_padding_mask(VALID), draw_vectors(1, 4, 256, 256))
        is None
    )
    assert "even numbers of positions only, not for 255 x 255" in find_reason(
        find_cudnn_obstacle, make_causal_mask(), **odd
    )
    assert "by a seed" in find_reason(find_cudnn_obstacle, drop=DROP)
    assert "not in float32" in find_reason(find_cudnn_obstacle, dtype=jnp.float32)
    both_ways, bias = Mask(window=7), draw_vectors(1, 4, 256, 256)
    assert (
        find_reason(find_cudnn_obstacle, both_ways)
        is find_reason(find_cudnn_obstacle, make_causal_mask(window=7))
        is None
    )
    for pairs in (packed, both_ways):
        assert "no gradient for a bias next to" in find_reason(find_cudnn_obstacle, pairs, bias)
    assert "not [1, 1, 256, 256]" in find_reason(
        find_cudnn_obstacle, None, draw_vectors(1, 1, 256, 256)
    )
    assert "heads of up to 128 in steps of 8, not of 100" in find_reason(find_cudnn_obstacle, K=100)
    assert "not of 136" in find_reason(find_cudnn_obstacle, K=136)
    assert "all positions of a row on one device" in find_reason(
        find_cudnn_obstacle, sizes=(1, 2, 2, 2)
    )


@pytest.mark.parametrize(
    ("capability", "runs"),
    [
        ("7.0", False), ("7.5", False), ("8.0", True), ("8.9", True), ("12.0", True),
        ("gfx942", False),
    ],
)  # fmt: skip
def test_cudnn_has_no_attention_for_gpus_before_ampere(capability, runs):
    device = SimpleNamespace(platform="gpu", compute_capability=capability)
    mesh = SimpleNamespace(devices=np.array([device]), shape={"sequence": 1})
    q = draw_vectors(2, 128, 2, 64, dtype=jnp.bfloat16)
    reason = find_cudnn_obstacle(q, q, None, None, None, mesh)
    assert reason == (
        None if runs else f"needs a GPU of compute capability 8.0, not of {capability}"
    )


def test_on_a_cpu_it_is_xlas_own():
    """It is reported where attention is traced: a model without attention has none."""
    heard, mesh = [], make_mesh(Mesh())
    chosen = make_attend(mesh, lambda *message: heard.append(message))
    assert choose_plain_attend(mesh) is attend and heard == []
    q = draw_vectors(2, 128, 2, 8)
    np.testing.assert_array_equal(chosen(q, q, q), attend(q, q, q))
    assert heard == [("XLA", None)]


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_the_platform_selects_the_kernel_or_falls_back(platform):
    """Make a mesh of devices that do not exist: only the choice is computed."""
    devices = np.array([SimpleNamespace(platform=platform)])
    mesh = SimpleNamespace(
        devices=devices, shape=dict.fromkeys(("data", "fsdp", "sequence", "model"), 1)
    )
    heard = []
    chosen = make_attend(mesh, lambda *message: heard.append(message))
    q = draw_vectors(2, 128, 2, 8, dtype=jnp.bfloat16)
    np.testing.assert_array_equal(chosen(q, q, q, drop=DROP), attend(q, q, q, drop=DROP))
    ((kernel, reason),) = heard
    assert kernel == "XLA" and reason.startswith(
        {"tpu": "Splash cannot drop", "gpu": "cuDNN drops"}[platform]
    )


@pytest.mark.parametrize(("platform", "name"), [("tpu", "row"), ("gpu", "cudnn")])
def test_a_kernel_that_cannot_cap_scores_falls_back(platform, name):
    """Splash can, and serves a TPU by itself."""
    mesh = make_mesh(Mesh(), jax.devices()[:1])
    call = AttentionCall(*make_shapes()[:1] * 3, None, None, None, None)
    rules = AttentionRules(name)
    for cap, reasons in ((None, []), (5.0, ["cannot cap the scores"])):
        kernel, found = choose_kernel(platform, call._replace(soft_cap=cap), mesh, rules)
        assert (kernel is None) == bool(reasons)
        assert [reason.endswith(end) for reason, end in zip(found, reasons, strict=True)] == [
            True
        ] * len(reasons)
    if platform == "tpu":
        kernel, _ = choose_kernel(platform, call._replace(soft_cap=5.0), mesh, AttentionRules())
        assert kernel.choice == "splash"


# The last one is just below the middle of two numbers of float32.
@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    "scale", [0.125, 100**-0.5, 1.0, 1 - 2**-24, float(np.float32(0.3)) + 2**-26 * 0.9999]
)
def test_calls_of_cudnn_have_the_same_scale_in_float32(scale):
    """Else XLA does not find the kernel of the second of two equal calls (openxla/xla#46500)."""
    scales = [distinguish_scale(scale, call) for call in range(MAX_CALLS)]
    assert set(np.float32(scales)) == {np.float32(scale)}
    assert len(set(scales)) == MAX_CALLS
    assert distinguish_scale(scale, MAX_CALLS) == scales[0]


def test_each_call_on_a_gpu_has_its_own_scale(monkeypatch):
    devices = np.array([SimpleNamespace(platform="gpu")])
    mesh = SimpleNamespace(
        devices=devices, shape=dict.fromkeys(("data", "fsdp", "sequence", "model"), 1)
    )
    scales = []

    def record_scale(q, k, v, bias, mask, *, scale, **options):
        scales.append(scale)
        return q

    monkeypatch.setattr(jax.nn, "dot_product_attention", record_scale)
    q = draw_vectors(2, 128, 2, 64, dtype=jnp.bfloat16)
    for _ in range(2):  # two programs
        attend_by_kernel = make_attend(mesh)
        attend_by_kernel(q, q, q)
        attend_by_kernel(q, q, q, scale=0.125)
    assert scales[:2] == scales[2:] and scales[0] != scales[1]
    assert set(np.float32(scales)) == {np.float32(0.125)}
