"""Compare residuals chosen by `nn.remat` and names with hand-written derivatives.

    python -m benchmarks.speed.recompute [--only bert_mini] [--steps 5] [--rounds 3]
    python -m benchmarks.speed.recompute --topology v5e:4x4 --only bert_base

Four ways to compute the training step of a configuration:

    by hand    the operations of `pretrain/kernels`
    policy     the same matmuls and dropout; `nn.remat` around each layer saves the outputs of
               linear maps and the softmax's weights
    plain      the same matmuls and dropout, with the residuals that JAX chooses
    equations  only the operations of `models/layers/ops.py`, with the policy

The ways take turns, step by step, in one process, each with its own state; the medians and their
ratios to "by hand" are reported. Temporaries are the compiler's. With --topology nothing runs: the
steps are compiled by libtpu for a TPU slice. A dated section is appended to
benchmarks/results/recompute.md.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import flax.linen as nn
import jax
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from benchmarks.harness import format_command, format_title, int_at_least, report_errors
from benchmarks.results_pages import add_result
from data.mixed import map_shapes
from models.layers import ops
from pretrain.config import Mesh, Run, load
from pretrain.kernels import model_hooks
from pretrain.mesh.sharding import make_mesh
from pretrain.training.program import Program, make_program

LENGTH = "data.objective.length=128"
# Sizes that a CPU of two cores computes in seconds.
CASES = {
    "bert_mini": ["data.batch_size=16", LENGTH, "data.objective.max_predictions=38"],
    "bert_base": ["data.batch_size=8", LENGTH, "data.objective.max_predictions=20"],
    "t5_small": ["data.batch_size=8", "data.objective.inputs=128"],
    "gpt2": ["data.batch_size=4", LENGTH],
}
# The names of the residuals that the policy saves.
SAVED_NAMES = ("linear", "softmax")
Way = tuple[ops.Ops, bool]  # the operations, and whether the policy chooses the residuals


def name_linear(linear: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a linear map whose output has a name for the policy."""
    return lambda *arguments: checkpoint_name(linear(*arguments), "linear")


def average_named(
    scores_BHLM: jax.Array, v_BMHK: jax.Array, drop: Callable[[jax.Array], jax.Array] | None
) -> jax.Array:
    """Return `models.layers.ops.average_values`, with a name for the softmax's weights."""
    weights_BHLM = checkpoint_name(jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype), "softmax")
    if drop is not None:
        weights_BHLM = drop(weights_BHLM)
    return jax.numpy.einsum("bhlm,bmhk->blhk", weights_BHLM, v_BMHK)


def make_ops(linear: Callable[..., jax.Array], **settings: Any) -> ops.Ops:
    """Return operations without hand-written derivatives of activations and attention."""

    def activation_linear(
        act: Callable[..., jax.Array],
        read: tuple[jax.Array, ...],
        drop: Callable[[jax.Array], jax.Array] | None,
        kernel: jax.Array,
        contract: int = 1,
        result: Any = None,
    ) -> jax.Array:
        x = act(*read)
        return linear(x if drop is None else drop(x), kernel, contract, result)

    attend = jax.tree_util.Partial(ops.attend, average=average_named)
    return ops.Ops(linear=linear, activation_linear=activation_linear, attend=attend, **settings)


def list_ways() -> dict[str, Way]:
    """Return the ways by name."""
    by_hand = model_hooks.OPS
    platform = {"add_bias": by_hand.add_bias, "drop": by_hand.drop}
    named = name_linear(by_hand.linear)
    return {
        "by hand": (by_hand, False),
        "policy": (make_ops(named, **platform), True),
        "plain": (make_ops(by_hand.linear, **platform), False),
        "equations": (make_ops(name_linear(ops.apply_linear)), True),
    }


@contextlib.contextmanager
def use_operations(operations: ops.Ops, has_policy: bool) -> Iterator[None]:
    """Make programs that are traced in this context use the operations."""
    policy = jax.checkpoint_policies.save_only_these_names(*SAVED_NAMES)
    remat = nn.remat
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(model_hooks, "OPS", operations))
        stack.enter_context(
            mock.patch("pretrain.kernels.attention.choice.attend", operations.attend)
        )
        if has_policy:
            stack.enter_context(
                mock.patch.object(
                    nn, "remat", lambda body, **settings: remat(body, policy=policy, **settings)
                )
            )
        yield


def compile_way(run: Run, mesh: jax.sharding.Mesh, way: Way) -> tuple[Program, Any]:
    """Return (program, its compiled update)."""
    operations, has_policy = way
    if has_policy:
        model: Any = run.model
        run = dataclasses.replace(run, model=dataclasses.replace(model, remat=True))
    with jax.set_mesh(mesh), use_operations(operations, has_policy):
        program = make_program(run, mesh)
        return program, program.train_step.lower(program.describe_state(), program.batch).compile()


def make_batch(run: Run) -> dict[str, Any]:
    """Return a batch of random ids without padding."""
    model: Any = run.model
    rng = np.random.default_rng(0)

    def fill_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if dtype.kind in "bf":
            return np.ones(shape, dtype)
        return rng.integers(0, min(model.vocab, 100), shape).astype(dtype)

    batch: Any = map_shapes(fill_array, run.data.objective, run.data.batch_size)
    for key in batch:
        if key in ("token_type_ids", "next_sentence_labels"):
            batch[key] %= 2
        elif key == "segment_ids":
            batch[key] = np.ones_like(batch[key])
    return batch


def time_ways(run: Run, steps: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return {way: (temporary MiB, median milliseconds)} on one CPU device."""
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    batch, states, compiled, seconds = make_batch(run), {}, {}, {}
    for name, way in list_ways().items():
        program, compiled[name] = compile_way(run, mesh, way)
        with jax.set_mesh(mesh):
            states[name] = program.init()
            seconds[name] = []
    for turn in range(steps * rounds + 1):
        for name, update in compiled.items():
            start = time.perf_counter()
            states[name], metrics = update(states[name], batch)
            jax.block_until_ready(metrics)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {
        name: (
            compiled[name].memory_analysis().temp_size_in_bytes / 2**20,
            1e3 * float(np.median(seconds[name])),
        )
        for name in compiled
    }


def plan_ways(run: Run, topology: str) -> dict[str, tuple[float, float]]:
    """Compile the ways for a TPU slice; return {way: (temporary MiB, MiB through HBM)} a chip."""
    from pretrain.plan import topology as machines
    from pretrain.plan.hbm_traffic import count_memory_bytes
    from pretrain.plan.hlo import HloModule

    machines.configure_environment()
    mesh, costs = make_mesh(run.mesh, machines.make_tpu_machine(topology).devices), {}
    for name, way in list_ways().items():
        _, compiled = compile_way(run, mesh, way)
        moved = count_memory_bytes(HloModule(compiled.as_text()))
        costs[name] = compiled.memory_analysis().temp_size_in_bytes / 2**20, moved / 2**20
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--steps", type=int_at_least(1), default=5)
    parser.add_argument("--rounds", type=int_at_least(1), default=3)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--topology", help="a TPU slice, such as v5e:4x4")
    args = parser.parse_args()
    if args.topology:
        from pretrain.plan.topology import make_tpu_machine

        with report_errors(parser):
            make_tpu_machine(args.topology)
    load_before, lines = os.getloadavg()[0], []
    unit = "through HBM, MiB" if args.topology else "step, ms"
    for case in args.only or CASES:
        overrides = [] if args.topology else CASES[case]
        run = load(case, [*overrides, f"train.compute_dtype={args.dtype}"])
        costs = (
            plan_ways(run, args.topology)
            if args.topology
            else time_ways(run, args.steps, args.rounds)
        )
        by_hand = costs["by hand"]
        for name, (temporary, cost) in costs.items():
            ratios = f"{temporary / by_hand[0]:.2f} | {cost:,.1f} | {cost / by_hand[1]:.3f}"
            lines.append(f"| {case} | {name} | {temporary:,.0f} | {ratios} |")
            print(lines[-1], flush=True)
    head = [
        format_title(load_before, f"jax {jax.__version__}"),
        "",
        f"`{format_command()}`",
        "",
        f"| configuration | way | temporaries, MiB | of those by hand | {unit} | of that by hand |",
        "|---|---|---|---|---|---|",
    ]
    add_result("recompute", [*head, *lines])


if __name__ == "__main__":
    main()
