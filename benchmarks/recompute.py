"""What the backward pass keeps: chosen by `nn.remat` and names, or by derivatives that are written by hand.

    python -m benchmarks.recompute [--only bert_mini] [--steps 5] [--rounds 3]
    python -m benchmarks.recompute --topology v5e:4x4 --only bert_base

Four ways to compute the training step of a configuration:

    by hand    the operations of `pretrain/distributed/ops`
    policy     the same products and dropout; `nn.remat` around each layer keeps the outputs of linear maps and the softmax's weights
    plain      the same products and dropout, and what JAX keeps by itself
    equations  the operations of `models/layers/ops.py` alone, with the policy

The ways take turns, step by step, in one process, each with a state of its own; the medians count, and their ratios to "by hand". Temporaries
are the compiler's. With --topology nothing runs: the steps are compiled by libtpu for a slice that is not here. Appends a dated section to
benchmarks/results/recompute.md.
"""

import argparse
import contextlib
import dataclasses
import os
import time
from unittest import mock

import flax.linen as nn
import jax
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from benchmarks.harness import append, at_least, command, title
from data.mixed import map_shapes
from models.layers import ops
from pretrain.config import Mesh, load
from pretrain.distributed import model_hooks
from pretrain.distributed.sharding import make_mesh
from pretrain.training.program import make_program

CASES = {  # sizes that a CPU of two cores computes in seconds
    "bert_mini": ["data.batch_size=16", "data.objective.length=128", "data.objective.max_predictions=38"],
    "bert_base": ["data.batch_size=8", "data.objective.length=128", "data.objective.max_predictions=20"],
    "t5_small": ["data.batch_size=8", "data.objective.inputs=128"],
    "gpt2": ["data.batch_size=4", "data.objective.length=128"],
}  # fmt: skip
SAVED = ("linear", "softmax")


def name_linear(linear):
    """Return a linear map whose output has a name for the policy."""
    return lambda *arguments: checkpoint_name(linear(*arguments), "linear")


def average_named(scores_BHLM, v_BMHK, drop):
    """Return what `models.layers.ops.average_values` does; the softmax's weights have a name for the policy."""
    weights_BHLM = checkpoint_name(jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype), "softmax")
    if drop is not None:
        weights_BHLM = drop(weights_BHLM)
    return jax.numpy.einsum("bhlm,bmhk->blhk", weights_BHLM, v_BMHK)


def make_ops(linear, **settings):
    """Return operations that keep nothing by hand."""

    def activation_linear(act, read, drop, kernel, contract=1, result=None):
        x = act(*read)
        return linear(x if drop is None else drop(x), kernel, contract, result)

    attend = jax.tree_util.Partial(ops.attend, average=average_named)
    return ops.Ops(linear=linear, activation_linear=activation_linear, attend=attend, **settings)


def list_ways():
    """Return {name: (operations, whether the policy decides)}."""
    own = model_hooks.OPS
    platform = {"add_bias": own.add_bias, "drop": own.drop}
    named = name_linear(own.linear)
    return {
        "by hand": (own, False),
        "policy": (make_ops(named, **platform), True),
        "plain": (make_ops(own.linear, **platform), False),
        "equations": (make_ops(name_linear(ops.apply_linear)), True),
    }


@contextlib.contextmanager
def injected(operations, has_policy):
    """Have programs that are traced in this block compute by these operations."""
    policy = jax.checkpoint_policies.save_only_these_names(*SAVED)
    remat = nn.remat
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(model_hooks, "OPS", operations))
        stack.enter_context(
            mock.patch("pretrain.distributed.attention_kernels.attend", operations.attend)
        )
        if has_policy:
            chosen = lambda body, **settings: remat(body, policy=policy, **settings)  # noqa: E731
            stack.enter_context(mock.patch.object(nn, "remat", chosen))
        yield


def compile_way(run, mesh, way):
    """Return (program, its compiled update)."""
    operations, has_policy = way
    if has_policy:
        run = dataclasses.replace(run, model=dataclasses.replace(run.model, remat=True))
    with jax.set_mesh(mesh), injected(operations, has_policy):
        program = make_program(run, mesh)
        return program, program.update.lower(program.state(), program.batch).compile()


def make_batch(run):
    """Return a batch of random ids that all count."""
    rng = np.random.default_rng(0)

    def fill(shape, dtype):
        if dtype.kind in "bf":
            return np.ones(shape, dtype)
        return rng.integers(0, min(run.model.vocab, 100), shape).astype(dtype)

    batch = map_shapes(fill, run.data.objective, run.data.batch_size)
    for key in batch:
        if key in ("token_type_ids", "next_sentence_labels"):
            batch[key] %= 2
        elif key == "segment_ids":
            batch[key] = np.ones_like(batch[key])
    return batch


def time_ways(run, steps, rounds):
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


def plan_ways(run, topology):
    """Return {way: (temporary MiB, MiB through HBM)} a chip, compiled for a TPU slice."""
    from pretrain.plan import topology as machines
    from pretrain.plan.hlo import Module

    machines.prepare()
    mesh, found = make_mesh(run.mesh, machines.tpu(topology).devices), {}
    for name, way in list_ways().items():
        _, compiled = compile_way(run, mesh, way)
        moved = Module(compiled.as_text()).memory_bytes()
        found[name] = compiled.memory_analysis().temp_size_in_bytes / 2**20, moved / 2**20
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--steps", type=at_least(1), default=5)
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--topology", help="a TPU slice, such as v5e:4x4")
    args = parser.parse_args()
    load_before, lines = os.getloadavg()[0], []
    unit = "through HBM, MiB" if args.topology else "step, ms"
    for case in args.only or CASES:
        words = [] if args.topology else CASES[case]
        run = load(case, [*words, f"train.compute_dtype={args.dtype}"])
        found = (
            plan_ways(run, args.topology)
            if args.topology
            else time_ways(run, args.steps, args.rounds)
        )
        of_hand = found["by hand"]
        for name, (temporary, cost) in found.items():
            ratios = f"{temporary / of_hand[0]:.2f} | {cost:,.1f} | {cost / of_hand[1]:.3f}"
            lines.append(f"| {case} | {name} | {temporary:,.0f} | {ratios} |")
            print(lines[-1], flush=True)
    head = [
        title(load_before, f"jax {jax.__version__}"),
        "",
        f"`{command()}`",
        "",
        f"| configuration | way | temporaries, MiB | of those by hand | {unit} | of that by hand |",
        "|---|---|---|---|---|---|",
    ]
    append("recompute.md", [*head, *lines])


if __name__ == "__main__":
    main()
