"""Profile the training steps of benchmarks/speed/step.py: time by kind of operation.

    python -m benchmarks.speed.step_profile [--cases bert_base,t5_small] [--types float32,bfloat16]
      [--length 128] [--steps 4] [--device gpu]

Each operation that XLA runs is traced (`--xla_cpu_enable_xprof_traceme`); its name in the compiled
program shows which line of the model it is from. Several operations run at a time, and the trace
slows short ones down, so that kinds are reported as shares of the operations' total time. "floor"
is the time of the model's FLOPs at the rate of square float32 matmuls of 1,024 on the same cores,
as a share of a step timed without a trace.

--device gpu profiles the cases of a GPU there, as benchmarks/speed/step.py runs them. The steps run
without command buffers (CUDA graphs), whose kernels a trace cannot assign to operations. The rate
is then the published one of the chip and the dtype.

A dated section is appended to benchmarks/results/step_profile.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    NO_CACHE,
    Worker,
    answer_messages,
    format_command,
    format_title,
    int_at_least,
    some_of,
)
from benchmarks.results_pages import add_result
from benchmarks.speed.step import TOLERANCE
from benchmarks.speed.step_cases import DEVICES, make_batch
from pretrain.training.monitoring.operations import (
    COPIES,
    KIND_PATTERNS,
    OTHER,
    parse_operations,
    read_trace,
    sum_kinds,
)

XLA_FLAGS = {
    "cpu": "--xla_cpu_enable_xprof_traceme=true",
    "gpu": "--xla_gpu_enable_command_buffer=",
}


def serve_requests() -> dict[str, Any]:
    """Return the first answer of a case and the step function.

    The step function returns the seconds of a step without a trace and {kind: seconds} with one.
    """
    case = json.loads(sys.argv[2])
    import jax

    from benchmarks.speed.step_cloze import get_peak_flops, make_config
    from pretrain.config import Mesh
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training import flops
    from pretrain.training.program import make_program

    batch = make_batch(case["family"], case["length"], case["rows"])
    run = make_config(case, {key: value.shape for key, value in batch.items()})
    device = jax.devices()[0]
    program = make_program(run, make_mesh(Mesh(1), [device]))
    state = program.init()
    batch = jax.device_put(batch, {key: program.batch[key].sharding for key in batch})
    train_step = program.train_step.lower(state, batch).compile()
    names = parse_operations(train_step.as_text())

    def time_step() -> float:
        nonlocal state
        start = time.perf_counter()
        state, metrics = train_step(state, batch)
        jax.block_until_ready((state, metrics))
        return time.perf_counter() - start

    def run_steps(steps: int) -> dict[str, Any]:
        time_step()
        times = [time_step() for _ in range(steps)]
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(steps):
                    time_step()
            kinds = {
                kind: seconds / steps
                for kind, seconds in sum_kinds(read_trace(folder), names).items()
            }
        return {"seconds": float(np.median(times)), "kinds": kinds}

    ready = {
        "flops": flops.count_step_flops(run).all_pairs,
        "rate": (
            flops.measure_matmul_rate("float32")
            if device.platform == "cpu"
            else get_peak_flops(device, case["compute"])
        ),
        "versions": [
            *([] if device.platform == "cpu" else [device.device_kind]),
            f"JAX {jax.__version__}",
        ],
    }
    return {"ready": ready, "step": run_steps}


def format_row(name: str, compute: str, ready: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Return a row of the table: the step, the floor's share, and the share of each kind.

    Args:
      ready: first answer of the worker.
      answer: answer of its step function.
    """
    whole = sum(answer["kinds"].values())
    shares = [answer["kinds"].get(kind, 0) / whole for kind in (*KIND_PATTERNS, COPIES, OTHER)]
    cells = [
        name,
        compute,
        f"{1000 * answer['seconds']:,.0f}",
        f"{ready['flops'] / ready['rate'] / answer['seconds']:.0%}",
    ]
    return f"| {' | '.join([*cells, *(f'{share:.1%}' for share in shares)])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--cases", help="default: all cases of the device")
    parser.add_argument("--types", type=some_of(TOLERANCE), default=list(TOLERANCE))
    parser.add_argument("--length", type=int, choices=(128, 512), default=128)
    parser.add_argument("--steps", type=int_at_least(1), default=4)
    args = parser.parse_args()
    cases, platform = DEVICES[args.device]
    try:
        args.cases = list(cases) if args.cases is None else some_of(cases)(args.cases)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --cases, on a {args.device}: {error}")
    load, lines, versions = os.getloadavg()[0], [], []
    environment = MALLOC_ENVIRONMENT | NO_CACHE | platform | {"XLA_FLAGS": XLA_FLAGS[args.device]}
    for name in args.cases:
        for compute in args.types:
            family, model, *rows = cases[name]
            case = {
                "family": family,
                "model": model | {"scan": False},
                "compute": compute,
                "length": args.length,
                "rows": rows[args.length == 512],
            }
            program = [sys.executable, "-m", "benchmarks.speed.step_profile"]
            with Worker([*program, "--serve", json.dumps(case)], environment) as worker:
                ready = worker.read_answer()
                versions += ready["versions"]
                lines.append(format_row(name, compute, ready, worker.ask_worker(steps=args.steps)))
            print(lines[-1], file=sys.stderr, flush=True)
    columns = ["model", "type", "ms", "floor", *KIND_PATTERNS, COPIES, OTHER]
    note = (
        f"`{format_command()}`: {args.length} tokens a row, {args.steps} steps without a trace "
        "and as many with one."
    )
    add_result(
        "step_profile",
        [
            format_title(load, *dict.fromkeys(versions)),
            "",
            note,
            "",
            f"| {' | '.join(columns)} |",
            "|---" * len(columns) + "|",
            *lines,
        ],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        answer_messages(serve_requests)
    else:
        main()
