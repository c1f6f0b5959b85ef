"""Matmul FLOPs counted from the program itself, and what devices can do: the two sides of MFU.

XLA's own cost analysis counts a scanned layer once; the jaxpr knows how often it runs.
"""

import dataclasses
import functools
import math
import time
from functools import partial

import jax
import jax.numpy as jnp

from data.mixed import map_shapes
from models import build
from models.config.heads import HeadedConfig
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.training.accelerators import CHIPS
from pretrain.training.losses import LossOptions, make_loss
from pretrain.training.state import init_params


def count(jaxpr):
    """FLOPs of the matmuls of a jaxpr: 2 per multiply-add, scan bodies times their length, dearest branch, kernels block by block.

    A kernel's blocks are counted even where it skips them: half of a causal mask's.
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation):
    params = equation.params
    match equation.primitive.name:
        case "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            sizes = equation.invars[0].aval.shape
            return (
                2
                * math.prod(equation.outvars[0].aval.shape)
                * math.prod(sizes[dim] for dim in contracted)
            )
        case "scan":
            return params["length"] * count(params["jaxpr"])
        case "shard_map":
            return params["mesh"].size * count(params["jaxpr"])
        case "pallas_call":
            return math.prod(params["grid_mapping"].grid) * count(params["jaxpr"])
        case "cond":
            return max(count(branch) for branch in params["branches"])
    inner = [
        part
        for value in params.values()
        for part in (value if isinstance(value, (tuple, list)) else (value,))
    ]
    return sum(
        count(part)
        for part in inner
        if hasattr(part, "eqns") or hasattr(getattr(part, "jaxpr", None), "eqns")
    )


def of_step(run):
    """The matmul FLOPs that one training step of a run needs; what is only computed again (remat, parts of the targets) is not counted."""
    return _of_gradient(kept(run.model), run.data.objective, run.data.batch_size)


@functools.cache  # a trace of the whole model
def _of_gradient(config, objective, batch_size):
    """What a step spends matmuls on: the gradient of the loss. No optimizer multiplies matrices."""
    model, loss = build(config, **make_local_hooks()), make_loss(objective)
    batch = map_shapes(jax.ShapeDtypeStruct, objective, batch_size)

    def value(params, batch):
        sums = loss.sums(
            model,
            params,
            batch,
            train=True,
            dropout_key=jax.random.key(0),
            options=LossOptions(scores_at_once=math.inf),
        )
        return loss.value({name: sums[name] for name in loss.loss_terms})

    return count(
        jax.make_jaxpr(jax.grad(value))(
            jax.eval_shape(partial(init_params, model, objective, 0)), batch
        )
    )


def kept(model):
    """The configuration of a model, or of its encoder, that computes nothing again."""
    if isinstance(model, HeadedConfig):
        return dataclasses.replace(model, encoder=kept(model.encoder))
    return dataclasses.replace(model, remat=False)


def peak(device, compute):
    """FLOP/s of one device: from the table, measured on a CPU, None for an accelerator that the table lacks."""
    if device.platform == "cpu":
        return measured(compute)
    chip = CHIPS.get(device.device_kind)
    return chip and chip.flops


@functools.cache
def measured(compute, size=1024, seconds=0.2):
    """The rate of a square matmul in the compute type on this host's CPU, the best of what fits in `seconds`."""
    x = jnp.ones((size, size), compute)
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
