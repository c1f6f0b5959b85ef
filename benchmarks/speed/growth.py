"""Measure how a step's time grows with depth, width, batch, length and devices.

    python -m benchmarks.speed.growth [--points 6] [--steps 9] [--rounds 1]

Also how the compile time grows with depth, with scanned and with unrolled layers. The model is a
tiny BERT (2 layers of width 128, 16 rows of 128, 8,192 ids, float32, dropout, AdamW); one number
at a time takes other values. Each point runs in its own process with the environment variables of
launch.sh. It compiles the step without a cache, as a first run does, runs it once and then
`--steps` times, and the median is reported. With several rounds the points take turns, and
the median of the rounds is reported. The devices are fake and share the processor's cores, so that
at best the time of a step with the same global batch stays equal; the additional time is the cost
of smaller shards and of collectives. A dated section is appended to benchmarks/results/growth.md,
and the curves are drawn in benchmarks/results/growth.png.
"""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    NO_CACHE,
    RESULTS,
    ROOT,
    format_command,
    format_title,
    int_at_least,
)
from benchmarks.results_pages import add_result

if TYPE_CHECKING:
    from pretrain.config import Run

Point = dict[str, Any]
# {sweep: (values, seconds of a step [values], seconds to compile [values])}
Curves = Mapping[str, tuple[Any, ...]]

TINY = {"depth": 2, "width": 128, "batch": 16, "length": 128, "devices": 1, "scan": True}
# The number that varies -> its values.
SWEEPS = {
    "depth": (1, 2, 4, 8, 16, 32),
    "depth, unrolled": (1, 2, 4, 8, 16, 32),
    "width": (64, 128, 256, 512),
    "batch": (4, 8, 16, 32, 64),
    "length": (32, 64, 128, 256, 512),
    "devices": (1, 2, 4, 8),
}
UNITS = {
    "depth": "layers",
    "width": "width",
    "batch": "rows of a batch",
    "length": "tokens of a row",
    "devices": "fake devices, the same batch",
}


def make_config(point: Point) -> Run:
    """Return the configuration of a point."""
    from data.config import Data
    from data.objectives import MaskedLm
    from models.config.bert import BertConfig
    from pretrain.config import AdamW, Run, Train

    width, length = point["width"], point["length"]
    sizes = {
        "width": width,
        "num_heads": width // 64,
        "mlp": 4 * width,
        "depth": point["depth"],
        "scan": point["scan"],
    }
    objective = MaskedLm(length=length, max_predictions=-(-length * 20 // 128), rows="documents")
    data = Data(objective=objective, store="none", batch_size=point["batch"])
    return Run(
        model=BertConfig(vocab=8192, length=length, **sizes),
        data=data,
        optimizer=AdamW(),
        train=Train(steps=1_000_000, compute_dtype="float32"),
    )


def measure_point(point: Point, steps: int) -> dict[str, Any]:
    """Measure a point in this process.

    Returns:
      {compile: seconds, step: median seconds, version: of JAX}.
    """
    import jax
    import jax.numpy as jnp

    from pretrain.config import Mesh
    from pretrain.mesh.sharding import make_mesh
    from pretrain.training.program import make_program

    mesh = make_mesh(Mesh(point["devices"]))
    with jax.set_mesh(mesh):
        program = make_program(make_config(point), mesh)
        batch = {
            key: jax.device_put(jnp.ones(leaf.shape, leaf.dtype), leaf.sharding)
            for key, leaf in program.batch.items()
        }
        state = program.init()
        start = time.perf_counter()
        update = program.train_step.lower(state, batch).compile()
        compile_seconds, times = time.perf_counter() - start, []
        for _ in range(steps + 1):
            start = time.perf_counter()
            state, metrics = update(state, batch)
            jax.block_until_ready((state, metrics))
            times.append(time.perf_counter() - start)
    step_seconds = float(np.median(times[1:]))
    return {"compile": compile_seconds, "step": step_seconds, "version": jax.__version__}


def measure_in_process(point: Point, steps: int) -> dict[str, Any]:
    """Run `measure_point` in a new process and return its result."""
    flags = os.environ.get("XLA_FLAGS", "")
    flags += f" --xla_force_host_platform_device_count={point['devices']}"
    environment = (
        os.environ | MALLOC_ENVIRONMENT | NO_CACHE | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    )
    argv = [sys.executable, "-m", "benchmarks.speed.growth"]
    argv += ["--steps", str(steps), "--point", json.dumps(point)]
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def list_points(max_points: int) -> dict[tuple[str, int], Point]:
    """Return {(sweep, value): point} of the first `max_points` values of each sweep."""
    result = {}
    for sweep, values in SWEEPS.items():
        name = sweep.removesuffix(", unrolled")
        for value in values[:max_points]:
            result[sweep, value] = TINY | {name: value, "scan": name == sweep}
    return result


def measure_points(
    points: Mapping[tuple[str, int], Point], rounds: int, steps: int
) -> tuple[dict[tuple[str, int], np.ndarray], str]:
    """Measure points in turns; a point of several sweeps is measured once a round.

    Returns:
      ({(sweep, value): [seconds of a step, seconds to compile]}, version of JAX); the seconds are
      medians of the rounds.
    """
    distinct_points = {json.dumps(point): point for point in points.values()}
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in distinct_points}
    for _ in range(rounds):
        for name, point in distinct_points.items():
            results[name].append(measure_in_process(point, steps))
            print(f"{name}: {results[name][-1]}", file=sys.stderr)
    medians = {
        name: np.median([[result["step"], result["compile"]] for result in replies], axis=0)
        for name, replies in results.items()
    }
    version = next(iter(results.values()))[0]["version"]
    return {key: medians[json.dumps(point)] for key, point in points.items()}, version


def make_curves(results: Mapping[tuple[str, int], np.ndarray]) -> Curves:
    """Return the curves of the results of `measure_points`."""
    split = {}
    for sweep in SWEEPS:
        values = [value for name, value in results if name == sweep]
        split[sweep] = values, *np.array([results[sweep, value] for value in values]).T
    return split


def format_table(curves: Curves) -> list[str]:
    """Return the lines of the table: a line for each point.

    The exponent of the growth from the point before is 1 for proportional growth, 0 for none.
    """
    lines = [
        "| | | ms a step | grows as its power | seconds to compile | grows as its power |",
        "|---|---|---|---|---|---|",
    ]
    for sweep, (values, *columns) in curves.items():
        for i, value in enumerate(values):
            cells = []
            formatted = f"{1000 * columns[0][i]:,.1f}", f"{columns[1][i]:.1f}"
            for seconds, cell in zip(columns, formatted, strict=True):
                power = (
                    f"{np.log(seconds[i] / seconds[i - 1]) / np.log(value / values[i - 1]):.2f}"
                    if i
                    else ""
                )
                cells += [cell, power]
            lines.append(f"| {sweep} | {value} | {' | '.join(cells)} |")
    return lines


def draw_curves(curves: Curves, path: pathlib.Path) -> None:
    """Draw the time of a step against each number, and the compile time against depth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(11, 6.4), dpi=120, layout="constrained")
    panels = [(name, 0, 1000, "ms a step") for name in UNITS] + [
        ("depth", 1, 1, "seconds to compile")
    ]
    for ax, (name, column, scale, label) in zip(axes.flat, panels, strict=True):
        for number, sweep in enumerate(sweep for sweep in curves if sweep.startswith(name)):
            values, *columns = curves[sweep]
            kind = ("scanned", "unrolled")[number]
            ax.plot(
                values,
                scale * columns[column],
                "o-",
                color=f"C{number}",
                markersize=4,
                label=kind if name == "depth" else "a step",
            )
        values, first = curves[name][0], scale * curves[name][1 + column][0]
        if name != "devices":
            ax.plot(
                values,
                first * np.array(values) / values[0],
                ":",
                color="gray",
                linewidth=1,
                label="in proportion",
            )
        ax.set(xlabel=UNITS[name], ylabel=label, xscale="log", yscale="log")
        ax.set_xticks(values, [str(value) for value in values])
        ax.minorticks_off()
        low, high = ax.get_ylim()
        # The axis covers at least a factor of ten, so that small differences look flat.
        margin = max(1.0, (10 / (high / low)) ** 0.5)
        ax.set_ylim(low / margin, high * margin)
        low, high = ax.get_ylim()
        ticks = [
            tick
            for power in range(-4, 6)
            for tick in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
            if low <= tick <= high
        ]
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--points",
        type=int_at_least(1),
        default=6,
        help="points of each curve, from the smallest value",
    )
    parser.add_argument(
        "--steps", type=int_at_least(1), default=9, help="steps of each process after the first"
    )
    parser.add_argument("--rounds", type=int_at_least(1), default=1)
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(measure_point(args.point, args.steps)))
        return
    load = os.getloadavg()[0]
    results, version = measure_points(list_points(args.points), args.rounds, args.steps)
    split = make_curves(results)
    rounds = f"{args.rounds} round{'s' * (args.rounds > 1)}"
    note = f"`{format_command()}`: medians of a process's {args.steps} steps, and of {rounds}."
    lines = [format_title(load, f"JAX {version}"), "", note, ""]
    lines += [*format_table(split), "", "![growth](growth.png)", ""]
    add_result("growth", lines)
    draw_curves(split, RESULTS / "growth.png")


if __name__ == "__main__":
    main()
