"""Model FLOPs utilisation (MFU): matmul FLOPs counted in the jaxpr, and the peak of the devices."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
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
from pretrain.kernels.model_hooks import make_local_hooks
from pretrain.kernels.pair_scopes import (
    is_rare_branch,
    name_visible_pairs,
    read_computed_share,
    read_visible_share,
)
from pretrain.training.accelerators import CHIPS
from pretrain.training.losses import LossOptions, make_loss
from pretrain.training.state import init_params, init_variables

# (equation, name scopes around it) -> its figure; None: the sum over the equations inside it
CountEquation = Callable[[Any, str], Fraction | int | None]


def count_flops(jaxpr: Any, visible_only: bool = False, matrix_unit: int = 1) -> int:
    """Return the FLOPs of all matmuls of a (closed) jaxpr, 2 for each multiply-add.

    They count as often as they run, on all devices; see `sum_equations`.

    Args:
      visible_only: count of the matmuls in `pair_scopes.name_visible_pairs` only the share of the
        pairs that is visible.
      matrix_unit: the side of a matrix unit: each size of a product of matrices counts as the next
        multiple of it.
    """

    def count_matmul(equation: Any, scope: str) -> Fraction | None:
        if equation.primitive.name != "dot_general":
            return None
        num_matrices, rows, columns, summed = _find_matmul_sizes(equation)
        # Products with a vector are computed by the vector units.
        side = matrix_unit if min(rows, columns) > 1 else 1
        sizes = (-(-size // side) * side for size in (rows, columns, summed))
        num_multiplies = num_matrices * math.prod(sizes)
        return 2 * num_multiplies * (read_visible_share(scope) if visible_only else Fraction(1))

    return round(sum_equations(jaxpr, count_matmul))


def _find_matmul_sizes(equation: Any) -> tuple[int, int, int, int]:
    """Return (number of matrices, rows, columns, summed size) of a `dot_general`."""
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = (variable.aval.shape for variable in equation.invars)
    num_matrices = math.prod(left[dim] for dim in batch)
    summed = math.prod(left[dim] for dim in contracted)
    rows = math.prod(left) // (num_matrices * summed)
    return num_matrices, rows, math.prod(right) // (num_matrices * summed), summed


def sum_equations(jaxpr: Any, count_equation: CountEquation, scope: str = "") -> Fraction:
    """Return the sum of `count_equation` over a (closed) jaxpr, on all devices.

    The body of a scan counts as often as it runs, a conditional as its branch with the largest sum
    (as nothing in `pair_scopes.name_rare_branch`), the body of a `shard_map` for each device, and a
    Pallas kernel for each block of its grid that it computes: those that a mask rules out count
    only where `pair_scopes.name_computed_blocks` does not name the others.
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    total = Fraction(0)
    for equation in jaxpr.eqns:
        inner_scope = f"{scope}/{equation.source_info.name_stack}"
        figure = count_equation(equation, inner_scope)
        total += sum_inside(equation, count_equation, inner_scope) if figure is None else figure
    return total


def count_computed_blocks(equation: Any, scope: str) -> Fraction:
    """Return how many blocks of its grid a `pallas_call` computes."""
    return math.prod(equation.params["grid_mapping"].grid) * read_computed_share(scope)


def sum_inside(equation: Any, count_equation: CountEquation, scope: str) -> Fraction:
    """Return the sum over the equations inside an equation."""
    params = equation.params
    sums = (sum_equations(jaxpr, count_equation, scope) for jaxpr in _iterate_jaxprs(params))
    match equation.primitive.name:
        case "scan":
            return params["length"] * sum(sums, Fraction(0))
        case "shard_map":
            return params["mesh"].size * sum(sums, Fraction(0))
        case "pallas_call":
            return count_computed_blocks(equation, scope) * sum_equations(
                params["jaxpr"], count_equation, scope
            )
        case "cond":
            return Fraction(0) if is_rare_branch(scope) else max(sums)
        case _:
            return sum(sums, Fraction(0))


def _iterate_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs among the parameters of an equation."""
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(item, "eqns") or hasattr(getattr(item, "jaxpr", None), "eqns"):
                yield item


class StepFlops(NamedTuple):
    """The matmul FLOPs that one training step of a run needs, by two conventions.

    What is computed a second time, such as by rematerialisation, does not count.

    Attributes:
      all_pairs: as in the papers, which count a causal square of attention whole (Chowdhery et
        al. 2022, appendix B). MFU counts these. Of a sparse pattern, the pairs of its blocks.
      visible_pairs: without the pairs that a causal mask or a window hides. No kernel can compute
        less, so a rate of these never exceeds the peak. Equal to `all_pairs` without such a mask.
    """

    all_pairs: int
    visible_pairs: int


def count_step_flops(run: Run) -> StepFlops:
    """Return the matmul FLOPs that one training step of a run needs."""
    return _count_gradient(disable_remat(run.model), run.data.objective, run.data.batch_size)


def count_phase_flops(runs: Sequence[Run]) -> list[StepFlops]:
    """Return the matmul FLOPs of a step of each phase or stair.

    They are affine in the rows of a batch, but for products too small for a matrix unit. So the
    smallest and the largest batch of a ramp are traced, and no others.
    """
    sizes: dict[Any, list[int]] = {}
    for run in runs:
        sizes.setdefault((run.model, run.data.objective), []).append(run.data.batch_size)
    counts = []
    for run in runs:
        own = sizes[run.model, run.data.objective]
        low, high, size = min(own), max(own), run.data.batch_size
        ends = [
            count_step_flops(
                dataclasses.replace(run, data=dataclasses.replace(run.data, batch_size=rows))
            )
            for rows in (low, high)
        ]
        counts.append(
            StepFlops(*(a + (b - a) * (size - low) // max(high - low, 1) for a, b in zip(*ends)))
        )
    return counts


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
