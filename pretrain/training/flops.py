"""Model FLOPs utilisation (MFU): matmul FLOPs counted from the jaxpr, and the devices' peak rate.

XLA's own cost analysis counts a scanned layer once; the jaxpr says how often it runs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from data.mixed import Mixed, map_shapes
from data.objectives.objective import Objective
from models import build
from models.config.heads import HeadedConfig
from pretrain.config import Run
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.training.accelerators import CHIPS
from pretrain.training.losses import LossOptions, make_loss
from pretrain.training.state import init_params


def count_flops(jaxpr: Any) -> int:
    """Return the FLOPs of all matmuls of a (closed) jaxpr, 2 for each multiply-add.

    The body of a scan counts as often as it runs, a conditional as its most expensive branch, and a
    Pallas kernel as all blocks of its grid, even those that it skips, such as half of a causal
    mask.
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return sum(_count_equation(equation) for equation in jaxpr.eqns)


def _count_equation(equation: Any) -> int:
    params = equation.params
    match equation.primitive.name:
        case "dot_general":
            (contracted_dims, _), _ = params["dimension_numbers"]
            sizes = equation.invars[0].aval.shape
            return (
                2
                * math.prod(equation.outvars[0].aval.shape)
                * math.prod(sizes[dim] for dim in contracted_dims)
            )
        case "scan":
            return params["length"] * count_flops(params["jaxpr"])
        case "shard_map":
            return params["mesh"].size * count_flops(params["jaxpr"])
        case "pallas_call":
            return math.prod(params["grid_mapping"].grid) * count_flops(params["jaxpr"])
        case "cond":
            return max(count_flops(branch) for branch in params["branches"])
    values = [
        item
        for value in params.values()
        for item in (value if isinstance(value, (tuple, list)) else (value,))
    ]
    return sum(
        count_flops(value)
        for value in values
        if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")
    )


def count_step_flops(run: Run) -> int:
    """Return the matmul FLOPs that one training step of a run needs.

    What is computed a second time, such as by rematerialisation, does not count.
    """
    return _count_gradient(disable_remat(run.model), run.data.objective, run.data.batch_size)


@functools.cache  # It traces the whole model.
def _count_gradient(config: Any, objective: Objective | Mixed, batch_size: int) -> int:
    """Return the matmul FLOPs of the gradient of the loss; no optimizer multiplies matrices."""
    model, loss = build(config, **make_local_hooks()), make_loss(objective)
    batch = map_shapes(jax.ShapeDtypeStruct, objective, batch_size)

    def compute_loss(params: Any, batch: Any) -> jax.Array:
        sums = loss.sum_batch(
            model,
            params,
            batch,
            train=True,
            dropout_key=jax.random.key(0),
            options=LossOptions(scores_at_once=math.inf),
        )
        return loss.compute_loss({name: sums[name] for name in loss.loss_terms})

    params = jax.eval_shape(partial(init_params, model, objective, 0))
    return count_flops(jax.make_jaxpr(jax.grad(compute_loss))(params, batch))


def disable_remat(model: Any) -> Any:
    """Return the configuration of a model, or of its encoder, without rematerialisation."""
    if isinstance(model, HeadedConfig):
        return dataclasses.replace(model, encoder=disable_remat(model.encoder))
    return dataclasses.replace(model, remat=False)


def get_peak_flops(device: Any, compute_dtype: str) -> float | None:
    """Return the peak FLOP/s of one device.

    The figure comes from `CHIPS`; it is measured on a CPU, and None for an unknown accelerator.
    """
    if device.platform == "cpu":
        return measure_matmul_rate(compute_dtype)
    chip = CHIPS.get(device.device_kind)
    return chip and chip.flops


@functools.cache
def measure_matmul_rate(compute_dtype: str, size: int = 1024, seconds: float = 0.2) -> float:
    """Return the FLOP/s of a square matmul in `compute_dtype` on this host's CPU.

    It is the best of all runs that fit into `seconds`.
    """
    x = jnp.ones((size, size), compute_dtype)
    multiply = (
        jax.jit(lambda x: jax.lax.dot(x, x, preferred_element_type=jnp.float32)).lower(x).compile()
    )
    multiply(x).block_until_ready()
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        multiply(x).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
