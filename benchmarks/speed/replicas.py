"""Time the comparison of replicated state between devices (pretrain/mesh/replica_check.py).

    XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
      python -m benchmarks.speed.replicas [--config bert_mini] [path=value ...]

Times steps and checks on an empty batch of the configuration's shapes and prints the medians and
the check's share of 1,000 steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.harness import int_at_least, report_errors
from pretrain.config import load
from pretrain.mesh.replica_check import ReplicaCheck
from pretrain.mesh.sharding import make_mesh
from pretrain.training.program import make_program


def time_calls(function: Callable[[], Any], num_calls: int) -> tuple[float, Any]:
    """Return (median seconds of `num_calls` calls, last value) after one call, which compiles."""
    durations, value = [], jax.block_until_ready(function())
    for _ in range(num_calls):
        start = time.perf_counter()
        value = jax.block_until_ready(function())
        durations.append(time.perf_counter() - start)
    return statistics.median(durations), value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="bert_mini")
    parser.add_argument("--steps", type=int_at_least(1), default=5)
    parser.add_argument("overrides", nargs="*", metavar="path=value")
    args = parser.parse_intermixed_args()
    with report_errors(parser):
        run = load(args.config, args.overrides)
        mesh = make_mesh(run.mesh)
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        replicas = ReplicaCheck(program.state_shardings, mesh, 1)
        batch = {
            key: jax.device_put(jnp.zeros(leaf.shape, leaf.dtype), leaf.sharding)
            for key, leaf in program.batch.items()
        }
        holder = [program.init()]

        def train_step() -> Any:
            holder[0], metrics = program.train_step(holder[0], batch)
            return metrics

        step_s, _ = time_calls(train_step, args.steps)
        check_s, _ = time_calls(lambda: replicas.check(holder[0], 1), args.steps)
    size = sum(leaf.size for leaf in jax.tree.leaves(program.abstract_state.params))
    print(
        f"{args.config}, {size:,} parameters on {mesh.size} {jax.devices()[0].platform} devices "
        f"{dict(mesh.shape)}: {len(replicas.shared_leaves)} leaves compared"
    )
    print(
        f"a step {step_s * 1e3:,.1f} ms, a check {check_s * 1e3:,.1f} ms: "
        f"{check_s / step_s:.2f} steps, {check_s / step_s / 1000:.4%} of 1,000 steps"
    )


if __name__ == "__main__":
    main()
