"""How a step's time grows with depth, width, batch, length and devices, and the time to compile it with depth, scanned and unrolled.

    python -m benchmarks.growth [--points 6] [--steps 9] [--rounds 1]

A tiny BERT (2 layers of width 128, 16 rows of 128, 8,192 ids, float32, dropout on, AdamW) of which one number at a time takes other values.
Each point is a process of its own, which compiles the step without a cache, as a first run does, and runs it under the environment that
launch.sh sets, first once and then so many times, of which the median counts; with several rounds, the points take turns and the rounds'
median counts. Devices are fake ones, which share the processor's cores, so that a step of the same global batch can at best keep its time:
what it takes longer is the price of the parts and of their sums. A dated section is appended to benchmarks/results/growth.md, and the
curves are drawn in benchmarks/results/growth.png.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

from benchmarks.harness import KEEP_PAGES, NO_CACHE, RESULTS, ROOT, append, at_least, command, title

TINY = {"depth": 2, "width": 128, "batch": 16, "length": 128, "devices": 1, "scan": True}
SWEEPS = {  # what takes other values, and which
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


def configured(point):
    """The `config.Run` of a point."""
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


def measure(point, steps):
    """{"compile": seconds from the program to what can be run, "step": the median of a step's seconds}."""
    import jax
    import jax.numpy as jnp

    from pretrain.config import Mesh
    from pretrain.distributed.sharding import make_mesh
    from pretrain.training.program import make_program

    mesh = make_mesh(Mesh(point["devices"]))
    with jax.set_mesh(mesh):
        program = make_program(configured(point), mesh)
        batch = {
            key: jax.device_put(jnp.ones(leaf.shape, leaf.dtype), leaf.sharding)
            for key, leaf in program.batch.items()
        }
        state = program.init()
        began = time.perf_counter()
        update = program.update.lower(state, batch).compile()
        compiled, times = time.perf_counter() - began, []
        for _ in range(steps + 1):
            began = time.perf_counter()
            state, metrics = update(state, batch)
            jax.block_until_ready((state, metrics))
            times.append(time.perf_counter() - began)
    return {"compile": compiled, "step": float(np.median(times[1:])), "version": jax.__version__}


def fresh(point, steps):
    """`measure` in a process of its own."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={point['devices']}"
    environment = os.environ | KEEP_PAGES | NO_CACHE | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    words = [
        sys.executable,
        "-m",
        "benchmarks.growth",
        "--steps",
        str(steps),
        "--point",
        json.dumps(point),
    ]
    done = subprocess.run(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def points(most):
    """{(sweep, value): what is measured}; the tiny BERT itself, which stands in most sweeps, is measured once."""
    asked = {}
    for sweep, values in SWEEPS.items():
        name = sweep.removesuffix(", unrolled")
        for value in values[:most]:
            asked[sweep, value] = TINY | {name: value, "scan": name == sweep}
    return asked


def taken(asked, rounds, steps):
    """({(sweep, value): [seconds of a step, seconds to compile]}, version of JAX): medians of the rounds."""
    different = {json.dumps(point): point for point in asked.values()}
    found = {name: [] for name in different}
    for _ in range(rounds):
        for name, point in different.items():
            found[name].append(fresh(point, steps))
            print(f"{name}: {found[name][-1]}", file=sys.stderr)
    medians = {
        name: np.median([[told["step"], told["compile"]] for told in replies], axis=0)
        for name, replies in found.items()
    }
    return {at: medians[json.dumps(point)] for at, point in asked.items()}, next(
        iter(found.values())
    )[0]["version"]


def curves(found):
    """{sweep: (values, steps' seconds, seconds to compile)}."""
    split = {}
    for sweep in SWEEPS:
        values = [value for name, value in found if name == sweep]
        split[sweep] = values, *np.array([found[sweep, value] for value in values]).T
    return split


def table(split):
    """A line for each point, with the exponent of the growth from the one before: 1 is in proportion, 0 is none."""
    lines = [
        "| | | ms a step | grows as its power | seconds to compile | grows as its power |",
        "|---|---|---|---|---|---|",
    ]
    for sweep, (values, *columns) in split.items():
        for i, value in enumerate(values):
            cells = []
            for seconds, spelt in zip(
                columns, (f"{1000 * columns[0][i]:,.1f}", f"{columns[1][i]:.1f}"), strict=True
            ):
                power = (
                    f"{np.log(seconds[i] / seconds[i - 1]) / np.log(value / values[i - 1]):.2f}"
                    if i
                    else ""
                )
                cells += [spelt, power]
            lines.append(f"| {sweep} | {value} | {' | '.join(cells)} |")
    return lines


def draw(split, path):
    """One picture: the step against each number, and the time to compile against depth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(11, 6.4), dpi=120, layout="constrained")
    panels = [(name, 0, 1000, "ms a step") for name in UNITS] + [
        ("depth", 1, 1, "seconds to compile")
    ]
    for ax, (name, column, scale, label) in zip(axes.flat, panels, strict=True):
        for number, sweep in enumerate(sweep for sweep in split if sweep.startswith(name)):
            values, *columns = split[sweep]
            kind = ("scanned", "unrolled")[number]
            ax.plot(
                values,
                scale * columns[column],
                "o-",
                color=f"C{number}",
                markersize=4,
                label=kind if name == "depth" else "a step",
            )
        values, first = split[name][0], scale * split[name][1 + column][0]
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
        wide = max(
            1.0, (10 / (high / low)) ** 0.5
        )  # ten times at least, so that what is flat looks flat
        ax.set_ylim(low / wide, high * wide)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--points", type=at_least(1), default=6, help="of each curve, from its left"
    )
    parser.add_argument(
        "--steps", type=at_least(1), default=9, help="of each process, besides the first"
    )
    parser.add_argument("--rounds", type=at_least(1), default=1)
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(measure(args.point, args.steps)))
        return
    load = os.getloadavg()[0]
    found, version = taken(points(args.points), args.rounds, args.steps)
    split = curves(found)
    draw(split, RESULTS / "growth.png")
    note = f"`{command()}`: medians of a process's {args.steps} steps, and of {args.rounds} round{'s' * (args.rounds > 1)}."
    append(
        "growth.md",
        [
            title(load, f"JAX {version}"),
            "",
            note,
            "",
            *table(split),
            "",
            "![growth](growth.png)",
            "",
        ],
    )


if __name__ == "__main__":
    main()
