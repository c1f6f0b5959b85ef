"""bfloat16 matmuls: on a CPU float32's, rounded once; elsewhere XLA's own."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from models.layers.dropout import KeyedDropout
from models.layers.ops import PLAIN
from pretrain.kernels.hash_dropout import drop_by_hash as drop_by_hash
from pretrain.kernels.matmul import (
    MIN_NARROW_OUTPUTS,
    MIN_OUTPUTS,
    activation_matmul,
    add_bias,
    matmul,
    matmul_on_gpu,
)
from pretrain.mesh.xla_options import COMPILER_OPTIONS
from pretrain.training.flops import count_flops

B, L, D, H, K = 2, 5, 12, 3, 7


def draw_values(*shape, seed=0):
    """Draw bfloat16 numbers, as float32."""
    return (
        np.random.default_rng(seed)
        .standard_normal(shape)
        .astype(ml_dtypes.bfloat16)
        .astype(np.float32)
    )


CASES = {
    "one": ((B, L, D), (D, H, K), 1, "bld,dhk->blhk"),
    "two": ((B, L, H, K), (H, K, D), 2, "blhk,hkd->bld"),
    "rows": ((L, D), (D, K), 1, "ld,dk->lk"),
    "many outputs": ((B, L, D), (D, 2, MIN_OUTPUTS // 2), 1, "bld,dhk->blhk"),
    "wide rows": ((B, L, 4 * D), (4 * D, H, 1), 1, "bld,dhk->blhk"),
    "wide rows of heads": ((B, L, 4, D), (4, D, H), 2, "blhk,hkd->bld"),
}


@pytest.mark.held_by(2)
@pytest.mark.parametrize("result", [None, jnp.float32], ids=["same", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_a_narrow_product_is_the_wide_one_rounded_once(case, result):
    """Gradients are NumPy's float32 products, rounded once; the incoming gradient is rounded first."""
    left, right, contract, letters = CASES[case]
    x, w = draw_values(*left), draw_values(*right, seed=1)
    y, back = jax.vjp(
        partial(matmul, num_contracting_dims=contract, out_dtype=result),
        jnp.bfloat16(x),
        jnp.bfloat16(w),
    )
    expected = np.einsum(letters, x, w)
    assert y.dtype == (result or jnp.bfloat16)
    tight = 1e-5 if result else 2**-8
    np.testing.assert_allclose(np.float32(y), expected, rtol=tight, atol=1e-5)
    g = draw_values(*expected.shape, seed=2) + (2**-12 if result else 0)
    of_x, of_w = back(jnp.asarray(g, y.dtype))
    g = g.astype(ml_dtypes.bfloat16).astype(np.float32)
    inputs, made = letters.split("->")
    a, b = inputs.split(",")
    assert of_x.dtype == of_w.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        np.float32(of_x), np.einsum(f"{made},{b}->{a}", g, w), rtol=2**-8, atol=1e-5
    )
    np.testing.assert_allclose(
        np.float32(of_w), np.einsum(f"{a},{made}->{b}", x, g), rtol=2**-8, atol=1e-5
    )


@pytest.mark.held_by(2)
@pytest.mark.parametrize("case", CASES)
def test_float32_is_multiplied_as_matrices_on_a_cpu(case):
    """All three products, of inputs and kernels of any dimensions, equal NumPy's of the unreshaped
    arrays.
    """
    left, right, contract, letters = CASES[case]
    x, w = draw_values(*left), draw_values(*right, seed=1)
    value = jax.jit(
        lambda x, w, g: (
            jax.vjp(partial(matmul, num_contracting_dims=contract), x, w)[1](g),
            matmul(x, w, contract),
        )
    )
    g = draw_values(*np.einsum(letters, x, w).shape, seed=2)
    (of_x, of_w), y = value(x, w, g)
    inputs, made = letters.split("->")
    a, b = inputs.split(",")
    np.testing.assert_allclose(y, np.einsum(letters, x, w), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_x, np.einsum(f"{made},{b}->{a}", g, w), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_w, np.einsum(f"{a},{made}->{b}", x, g), rtol=1e-5, atol=1e-5)
    text = value.trace(x, w, g).lower(lowering_platforms=("cpu",)).as_text()
    sides = re.findall(
        r"stablehlo\.dot_general.*\(tensor<([\dx]*)f32>, tensor<([\dx]*)f32>\)", text
    )
    assert len(sides) == 3 and all(side.count("x") == 2 for pair in sides for side in pair)


def list_product_types(platform, dtype):
    """Return the dtypes of all products of a value and its gradients, as compiled for a platform."""

    def compute_value(x, w):
        return matmul(x, w, 1, None).astype(jnp.float32).sum()

    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((B, L, D), (D, K))]
    text = (
        jax.jit(jax.value_and_grad(compute_value, (0, 1)))
        .trace(*arrays)
        .lower(lowering_platforms=(platform,))
        .as_text()
    )
    return re.findall(
        r"stablehlo\.dot_general.*\(tensor<[\dx]*(\w+)>, tensor<[\dx]*(\w+)>\) -> tensor<[\dx]*(\w+)>",
        text,
    )


def test_only_a_cpu_widens():
    assert list_product_types("cpu", jnp.bfloat16) == [("bf16", "bf16", "f32")] * 3
    assert (
        list_product_types("tpu", jnp.bfloat16)
        == list_product_types("cuda", jnp.bfloat16)
        == [("bf16",) * 3] * 3
    )
    assert (
        list_product_types("cpu", jnp.float32)
        == list_product_types("tpu", jnp.float32)
        == [("f32",) * 3] * 3
    )


@pytest.mark.parametrize("made", [D - 1, D + 1])
def test_the_smaller_of_two_is_transposed_on_a_cpu(made):
    """The option affects the kernel's gradient, which is the same gradient."""
    x, w = draw_values(B, L, D), draw_values(D, made, seed=1)
    (y, back), (other, other_back) = (
        jax.vjp(matmul, x, w),
        jax.vjp(lambda x, w: jnp.einsum("bld,dk->blk", x, w), x, w),
    )
    np.testing.assert_allclose(y, other, rtol=1e-5, atol=1e-6)
    for one, two in zip(back(y), other_back(y)):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)
    text = (
        jax.jit(lambda x, w, g: jax.vjp(matmul, x, w)[1](g)[1])
        .trace(x, w, y)
        .lower(lowering_platforms=("cpu",))
        .as_text()
    )
    (left,) = re.findall(
        r"stablehlo\.dot_general.*contracting_dims = \[0\] x \[0\].*\(tensor<10x(\d+)xf32>", text
    )
    assert int(left) == min(D, made)


def compile_kernel_gradient(x, kernel):
    """Return the text of the program of a kernel's gradient, compiled as a training step is.

    Args:
      x, kernel: their `jax.ShapeDtypeStruct`; x is the input of the activation.
    """
    y = jax.eval_shape(matmul, x, kernel)
    compute = jax.jit(
        lambda x, kernel, g: jax.vjp(
            lambda kernel: activation_matmul(jax.nn.relu, (x,), None, kernel), kernel
        )[1](g)
    )
    return compute.lower(x, kernel, y).compile(COMPILER_OPTIONS["cpu"]).as_text()


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("inputs", "outputs", "is_copied"),
    [
        (MIN_OUTPUTS, MIN_OUTPUTS, True),
        (MIN_OUTPUTS, MIN_OUTPUTS - 1, False),
        (MIN_NARROW_OUTPUTS + 1, MIN_NARROW_OUTPUTS, True),
        (MIN_NARROW_OUTPUTS, MIN_NARROW_OUTPUTS - 1, False),
    ],
)
def test_the_rows_of_many_outputs_are_copied_transposed(inputs, outputs, is_copied):
    """XLA reads the left factor transposed, in a slow product, unless the copy prevents it."""
    shapes = (64, inputs), (inputs, outputs)
    text = compile_kernel_gradient(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    contracted = re.findall(r" dot\(.*lhs_contracting_dims=\{(\d)\}", text)
    assert contracted == ["1" if is_copied else "0"]


@pytest.mark.parametrize(("rows", "is_exchanged"), [(96, True), (8, False)])
def test_the_smaller_factor_of_a_narrow_product_is_transposed(rows, is_exchanged):
    """The product stays one of bfloat16 into float32."""
    shapes = (2, rows // 2, 64), (64, 16)
    text = compile_kernel_gradient(*(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes))
    types = dict(re.findall(r"%([\w.-]+) = (\w+\[[\d,]*\])", text))
    ((result, left),) = re.findall(r"= (\w+\[[\d,]*\])\S* dot\(%([\w.-]+)", text)
    expected = (16, 64) if is_exchanged else (64, 16)
    assert result == "f32[{},{}]".format(*expected)
    assert types[left] == f"bf16[{expected[0]},{rows}]"


@pytest.mark.held_by(2)
@pytest.mark.parametrize("made", [(D,), (H, K), (1000,)], ids=str)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=lambda dtype: dtype.__name__)
def test_the_gradient_of_a_bias_is_the_sum_over_rows(made, dtype):
    """The sum is over 600 rows, which bfloat16 itself could not add up: from 256 on it cannot
    represent the next integer.
    """
    x, bias, g = (
        jnp.asarray(a, dtype)
        for a in (
            draw_values(3, 200, *made),
            draw_values(*made, seed=1),
            1 + draw_values(3, 200, *made, seed=2),
        )
    )
    y, back = jax.vjp(add_bias, x, bias)
    of_x, of_bias = back(g)
    assert y.dtype == of_x.dtype == of_bias.dtype == dtype
    np.testing.assert_array_equal(y, x + bias)
    np.testing.assert_array_equal(of_x, g)
    np.testing.assert_allclose(
        np.float32(of_bias), np.float32(g).sum((0, 1)), rtol=1e-5 if dtype == jnp.float32 else 2**-8
    )


def test_only_a_cpu_multiplies_by_ones_and_only_long_rows():
    def uses_ones(platform, width):
        arrays = [
            jax.ShapeDtypeStruct(shape, jnp.float32)
            for shape in ((B, L, width), (width,), (B, L, width))
        ]
        traced = jax.jit(lambda x, bias, g: jax.vjp(add_bias, x, bias)[1](g)).trace(*arrays)
        return "dot_general" in traced.lower(lowering_platforms=(platform,)).as_text()

    assert (
        uses_ones("cpu", B * L + 1)
        and not uses_ones("cpu", B * L)
        and not uses_ones("tpu", B * L + 1)
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32], ids=lambda dtype: dtype.__name__)
def test_a_value_and_its_gradients_are_three_products(dtype):
    """Unused gradients are not traced: XLA did not remove all of BERT-large's, whose step
    had a fifth more FLOPs.
    """
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((L, D), (D, K))]
    traced = jax.make_jaxpr(
        jax.value_and_grad(lambda x, w: matmul(x, w).astype(jnp.float32).sum(), (0, 1))
    )(*arrays)
    assert count_flops(traced) == 3 * 2 * L * D * K


# ---- against the plain operations ------------------------------------------------


def assert_same(function, plain, arguments, tolerance=2e-6):
    """Compare values and all gradients of two functions, relative to the largest value of each
    array.
    """

    def differentiate(function):
        @jax.jit
        def compute(arguments):
            y, back = jax.vjp(function, *arguments)
            return y, *back(jnp.asarray(draw_values(*y.shape, seed=9)))

        return compute(arguments)

    for found, expected in zip(differentiate(function), differentiate(plain), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max(), rtol=0)


@pytest.mark.held_by(2)
@pytest.mark.parametrize("case", CASES)
def test_multiply_is_the_plain_product(case):
    left, right, contract, _ = CASES[case]
    arguments = jnp.asarray(draw_values(*left)), jnp.asarray(draw_values(*right, seed=1))
    assert_same(
        partial(matmul, num_contracting_dims=contract),
        partial(PLAIN.linear, num_contracting_dims=contract),
        arguments,
    )


@pytest.mark.held_by(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "drop",
    [None, KeyedDropout(jnp.array([7, 11], jnp.uint32), 0.5, (), drop_by_hash)],
    ids=["kept", "dropped"],
)
def test_multiply_activation_is_the_plain_product(case, drop):
    """The source is one array, or two."""
    left, right, contract, _ = CASES[case]
    gate, x, w = (
        jnp.asarray(draw_values(*shape, seed=i)) for i, shape in enumerate((left, left, right))
    )
    one = lambda op: lambda x, w: op(jnp.tanh, (x,), drop, w, contract)  # noqa: E731
    two = lambda op: lambda a, x, w: op(lambda a, x: jnp.tanh(a) * x, (a, x), drop, w, contract)  # noqa: E731
    for make, arguments in ((one, (x, w)), (two, (gate, x, w))):
        assert_same(make(activation_matmul), make(PLAIN.activation_linear), arguments)


@pytest.mark.parametrize("width", [D, 1000])
def test_add_bias_is_the_plain_sum(width):
    arguments = jnp.asarray(draw_values(B, L, width)), jnp.asarray(draw_values(width, seed=1))
    assert_same(add_bias, PLAIN.add_bias, arguments)


def test_gradients_of_logits_on_a_gpu_are_products_of_bfloat16():
    """The incoming gradient of float32 logits is rounded once, before both products."""
    x, kernel, gradient = draw_values(B, L, D), draw_values(D, 40, seed=1), draw_values(40, seed=2)
    gradient *= 1 + 2**-9  # between two numbers of bfloat16
    narrow = jnp.asarray(x, jnp.bfloat16), jnp.asarray(kernel, jnp.bfloat16)

    def weigh(linear, x, kernel):
        logits = linear(x, kernel, 1, jnp.float32)
        assert logits.dtype == jnp.float32
        return (logits * gradient).sum()

    compute = jax.jit(jax.value_and_grad(partial(weigh, matmul_on_gpu), (0, 1)))
    value, (dx, dkernel) = compute(*narrow)
    assert value == pytest.approx(float((x @ kernel * gradient).sum()), rel=1e-5)
    rounded = np.broadcast_to(gradient.astype(ml_dtypes.bfloat16), (B, L, 40)).astype(np.float64)
    for found, expected in (
        (dx, rounded @ kernel.T),
        (dkernel, np.einsum("bld,blo->do", x, rounded)),
    ):
        np.testing.assert_array_equal(found, expected.astype(np.float32).astype(ml_dtypes.bfloat16))
    text = compute.trace(*narrow).lower(lowering_platforms=("cuda",)).as_text()
    factors = re.findall(r"dot_general .* : \(tensor<[\dx]*x(\w+)>, tensor<[\dx]*x(\w+)>\)", text)
    assert factors == [("bf16", "bf16")] * 3
