"""Compare an operation with its plain equation, by one computed in float32 with exact products.

Both compute values and gradients in the dtype of the run. On an accelerator the plain equation
itself has errors, so an operation may have MAX_RATIO times as large ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models.layers import ops
from pretrain.kernels.attention.choice import AttentionCall, AttentionKernel
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.trials.attention_calls import MAX_PAIRS, InputDrawer, count_pairs
from pretrain.mesh.sharding import AXES

# Of the norm of an error, over the plain equation's; the largest error may be twice as large.
MAX_RATIO = 2.0
# Relative errors that rounding alone explains: half of the distance of bfloat16's numbers, and 32
# times float32's, because a softmax sums hundreds of them.
FLOORS = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "float32": 2.0**-18}
MAX_REASON = 300  # characters
PARTS = "the output", "the gradient of q", "the gradient of k", "the gradient of v"
BIAS_PART = "the gradient of the bias"


class Verdict(NamedTuple):
    """What a comparison has found.

    Attributes:
      reason: why the operation is not trusted, the end of a sentence that begins with its name; ""
        if it is trusted.
    """

    reason: str = ""
    detail: str = ""


def find_difference(
    own_arrays: Mapping[str, Any], plain: Mapping[str, Any], exact: Mapping[str, Any], dtype: str
) -> Verdict:
    """Compare the arrays of an operation with the arrays of its plain equation.

    Args:
      found: {name of a part: its array}.
      exact: of the plain equation in float32.
    """
    floor, worst = FLOORS[dtype], 0.0
    for name, expected in exact.items():
        x, y, z = (np.asarray(a, np.float32) for a in (own_arrays[name], plain[name], expected))
        if x.shape != z.shape:
            return Verdict(f"failed its test: {name} has the shape {x.shape}, not {z.shape}")
        if not np.isfinite(x).all():
            return Verdict(f"failed its test: {name} has values that are not finite")
        for measure, factor in ((np.linalg.norm, 1.0), (lambda a: np.abs(a).max(initial=0), 2.0)):
            size = float(measure(z.ravel())) or 1.0
            error, own = (float(measure((a - z).ravel())) / size for a in (x, y))
            limit = factor * (MAX_RATIO * own + floor)
            worst = max(worst, error / limit)
            if not error <= limit:
                return Verdict(
                    f"failed its test: {name} is off by {error:.2g} of its size, the plain "
                    f"equations by {own:.2g}"
                )
    return Verdict(detail=f"errors are at most {worst:.2f} of the bound")


def describe_error(error: BaseException) -> str:
    """Return the first line of an error."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:MAX_REASON]


def compare_attention(kernel: AttentionKernel, call: AttentionCall, device: Any) -> Verdict:
    """Run a kernel and the plain equations forward and backward, on one device.

    Dropout has the run's rate and one key: the kernels that have dropout drop the same weights.

    call: the shapes, as of `cut_call`.
    """
    mesh = jax.sharding.Mesh(np.array([device]).reshape(1, 1, 1, 1), AXES)
    drawer = InputDrawer(call)
    valid_BL11 = drawer.find_valid_queries()[..., None, None]
    weights = drawer.rng.standard_normal(call.q_BLHK.shape, np.float32)
    arrays = drawer.draw_arrays()._replace(scale=None, soft_cap=None)
    inputs, weights = jax.device_put((arrays, weights * valid_BL11), device)
    inputs = inputs._replace(scale=call.scale, soft_cap=call.soft_cap)
    options: dict[str, Any] = {"mesh": mesh}
    if device.platform == "gpu":
        options["calls"] = itertools.count()
    dtype = np.dtype(call.q_BLHK.dtype).name
    with jax.set_mesh(mesh):
        try:
            own_arrays = _run_attention(kernel.attend, inputs, weights, valid_BL11, options)
        except Exception as error:  # whatever a compiler raises is a reason against the kernel
            return Verdict(f"did not run in its test: {describe_error(error)}")
        if count_pairs(call) > 4 * MAX_PAIRS:
            wrong = [name for name, x in own_arrays.items() if not np.isfinite(x).all()]
            if wrong:
                return Verdict(f"failed its test: {wrong[0]} has values that are not finite")
            return Verdict(detail="finite; its rows are too long for the plain equations")
        plain = _run_attention(attend, inputs, weights, valid_BL11, {})
        with jax.default_matmul_precision("highest"):
            exact_inputs = _cast_floats(inputs)
            exact = _run_attention(ops.attend, exact_inputs, weights, valid_BL11, {})
    return find_difference(own_arrays, plain, exact, dtype)


def _cast_floats(tree: Any) -> Any:
    """Return a tree whose floats are float32."""
    return jax.tree.map(
        lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        tree._replace(scale=None, soft_cap=None),
    )._replace(scale=tree.scale, soft_cap=tree.soft_cap)


def _run_attention(
    attend: Callable[..., jax.Array],
    inputs: AttentionCall,
    weights: jax.Array,
    valid_BL11: np.ndarray,
    options: dict[str, Any],
) -> dict[str, np.ndarray]:
    """Return {name: array} of the output and the gradients of a sum of it with weights."""
    leaves, structure = jax.tree.flatten(inputs._replace(scale=None, soft_cap=None))
    is_float = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]

    def compute(floats: list[jax.Array], others: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        own, rest = iter(floats), iter(others)
        mixed = [next(own) if is_one else next(rest) for is_one in is_float]
        call: AttentionCall = jax.tree.unflatten(structure, mixed)
        call = call._replace(scale=inputs.scale, soft_cap=inputs.soft_cap)
        out = attend(*call[:3], **call.list_options(), **options)
        return (out.astype(jnp.float32) * weights).sum(), out

    split = [[x for x, is_one in zip(leaves, is_float) if is_one == kind] for kind in (True, False)]
    run = jax.jit(jax.value_and_grad(compute, has_aux=True))
    (_, out), gradients = jax.device_get(run(*split))
    names = [*PARTS[1:], *itertools.repeat(BIAS_PART, len(gradients) - 3)]
    named = {
        f"{name} ({i - 2})" if i > 3 else name: np.asarray(gradient, np.float32)
        for i, (name, gradient) in enumerate(zip(names, gradients, strict=True))
    }
    out = np.asarray(out, np.float32)
    # Padding may get any values, but a loss of weight 0 needs finite ones.
    return {PARTS[0]: np.where(valid_BL11 | ~np.isfinite(out), out, 0.0)} | named
