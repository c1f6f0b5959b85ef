"""Model FLOPs utilisation (MFU): matmul FLOPs counted from the jaxpr, and the devices' peak rate.

XLA's own cost analysis counts a scanned layer once; the jaxpr says how often it runs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from data.mixed import Mixed, map_shapes
from data.objectives.objective import Objective
from models import build
from models.config.heads import HeadedConfig
from pretrain.config import Run
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.distributed.ops.pair_scopes import (
    name_visible_pairs,
    read_computed_share,
    read_visible_share,
)
from pretrain.training.accelerators import CHIPS
from pretrain.training.losses import LossOptions, make_loss
from pretrain.training.state import init_params, init_variables


def count_flops(jaxpr: Any, visible_only: bool = False) -> int:
    """Return the FLOPs of all matmuls of a (closed) jaxpr, 2 for each multiply-add.

    The body of a scan counts as often as it runs, a conditional as its most expensive branch, and a
    Pallas kernel as the blocks of its grid that it computes: those that a mask rules out count only
    where `pair_scopes.name_computed_blocks` does not name the others.

    Args:
      visible_only: count of the matmuls in `pair_scopes.name_visible_pairs` only the share of the
        pairs that is visible.
    """
    return round(_count_jaxpr(jaxpr, visible_only, ""))


def _count_jaxpr(jaxpr: Any, visible_only: bool, scope: str) -> Fraction:
    """Return the FLOPs of a jaxpr inside the name scopes `scope`."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return sum(
        (_count_equation(equation, visible_only, scope) for equation in jaxpr.eqns), Fraction(0)
    )


def _count_equation(equation: Any, visible_only: bool, scope: str) -> Fraction:
    params = equation.params
    scope = f"{scope}/{equation.source_info.name_stack}"
    count_inner = partial(_count_jaxpr, visible_only=visible_only, scope=scope)
    match equation.primitive.name:
        case "dot_general":
            (contracted_dims, _), _ = params["dimension_numbers"]
            sizes = equation.invars[0].aval.shape
            share = read_visible_share(scope) if visible_only else 1
            num_multiplies = math.prod(equation.outvars[0].aval.shape) * math.prod(
                sizes[dim] for dim in contracted_dims
            )
            return Fraction(2 * num_multiplies) * share
        case "scan":
            return params["length"] * count_inner(params["jaxpr"])
        case "shard_map":
            return params["mesh"].size * count_inner(params["jaxpr"])
        case "pallas_call":
            num_blocks = math.prod(params["grid_mapping"].grid) * read_computed_share(scope)
            return num_blocks * count_inner(params["jaxpr"])
        case "cond":
            return max(count_inner(branch) for branch in params["branches"])
    values = [
        item
        for value in params.values()
        for item in (value if isinstance(value, (tuple, list)) else (value,))
    ]
    return sum(
        (
            count_inner(value)
            for value in values
            if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")
        ),
        Fraction(0),
    )


class StepFlops(NamedTuple):
    """The matmul FLOPs that one training step of a run needs, by two conventions.

    What is computed a second time, such as by rematerialisation, does not count.

    Attributes:
      all_pairs: those of the papers, which count a causal square of attention whole (Chowdhery et
        al. 2022, appendix B). MFU counts these. Of a sparse pattern, the pairs of its blocks.
      visible_pairs: without the pairs that a causal mask or a window hides. No kernel can compute
        less, so a rate of these never exceeds the peak. Equal to `all_pairs` without such a mask.
    """

    all_pairs: int
    visible_pairs: int


def count_step_flops(run: Run) -> StepFlops:
    """Return the matmul FLOPs that one training step of a run needs."""
    return _count_gradient(disable_remat(run.model), run.data.objective, run.data.batch_size)


@functools.cache  # It traces the whole model.
def _count_gradient(config: Any, objective: Objective | Mixed, batch_size: int) -> StepFlops:
    """Return the matmul FLOPs of the gradient of the loss; no optimizer multiplies matrices."""
    ops = make_local_hooks()["ops"]
    model = build(config, ops=ops._replace(attend=name_visible_pairs(ops.attend)))
    loss = make_loss(objective)
    batch = map_shapes(jax.ShapeDtypeStruct, objective, batch_size)

    def compute_loss(params: Any, batch: Any, variables: Any) -> jax.Array:
        output = loss.compute_batch(
            model,
            params,
            batch,
            train=True,
            dropout_key=jax.random.key(0),
            options=LossOptions(scores_at_once=math.inf),
            variables=variables,
        )
        return loss.compute_loss({name: output.sums[name] for name in loss.loss_terms})

    params = jax.eval_shape(partial(init_params, model, objective, 0))
    # What a model keeps between batches, such as a memory, is attended to as well.
    variables = jax.eval_shape(partial(init_variables, model, objective, batch_size))
    jaxpr = jax.make_jaxpr(jax.grad(compute_loss))(params, batch, variables)
    return StepFlops(count_flops(jaxpr), count_flops(jaxpr, visible_only=True))


def disable_remat(model: Any) -> Any:
    """Return the configuration of a model, or of its encoder, without rematerialisation."""
    if isinstance(model, HeadedConfig):
        return dataclasses.replace(model, encoder=disable_remat(model.encoder))
    return dataclasses.replace(model, remat=False) if model.remat else model


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
