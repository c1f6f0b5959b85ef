"""Measure how the time and memory of models of long rows grow with the length n of a row.

    python -m benchmarks.speed.long_rows [--longest 16384] [--rounds 5] [--gib 6] [--quick]

One layer of each family, of width 128 with heads of width 64, on one row of n random tokens in
float32, without dropout and without the prediction of tokens. Time is the forward pass's, and
of the gradient with it, in seconds of all processor cores, which other programs change less than
the clock's. All models at all lengths take turns, and figures are the median of the rounds. Memory
is the bytes of temporaries that XLA has compiled. What needs more than --gib, or longer than
--seconds for a row, is not timed. The exponents are least squares of the logarithms over
the lengths from 2,048. A dated section is added to benchmarks/results/long_rows.md, and next to it
long_rows_time.svg and long_rows_memory.svg are drawn. --quick prints a small run and writes
nothing.

The program starts itself again with pages of 2 MiB. Temporaries above 32 MiB are mapped again
at each call. In pages of 4 KiB that took two fifths of the time, and nothing in shorter rows.
"""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import RESULTS, duration, format_command, format_title, int_at_least
from benchmarks.results_pages import add_result
from benchmarks.speed.long_row_models import MODELS, SEGMENT, LongRowModel, make_model
from models.layers.cache import SEGMENT_MEMORY

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
NAME = "long_rows"
FIRST_FITTED = 2_048  # the shortest row of a fit
PASSES = ("forward", "gradient")
QUANTITIES = {"time": ("ms", 1e3, ",.1f"), "memory": ("MiB", 2.0**-20, ",.1f")}  # unit, factor
# {(quantity, pass): {name of a model: {n: seconds or bytes}}}
Measures = dict[tuple[str, str], dict[str, dict[int, float]]]


class CompiledPass(NamedTuple):
    """A compiled pass of a model, called as often as a row of n tokens needs it.

    Attributes:
      call: (parameters, variables, token ids) -> (result, new variables).
      params: shapes of the parameters.
      variables: the variables before the first call.
      shape: of the token ids.
      reads_mask: whether the call takes an attention mask, too.
      num_calls: the number of segments of the row.
    """

    call: Any
    params: Any
    variables: Any
    shape: tuple[int, int]
    reads_mask: bool
    num_calls: int

    @property
    def temporary_bytes(self) -> int:
        """The bytes of its temporaries."""
        return self.call.memory_analysis().temp_size_in_bytes

    def make_timer(self) -> Callable[[], float]:
        """Return a function that runs the program on a row and returns the processor's seconds."""
        rng = np.random.default_rng(0)
        inputs = [rng.integers(0, 100, self.shape, np.int32)]
        inputs += [np.ones(self.shape, bool)] * self.reads_mask
        params = jax.tree.map(
            lambda leaf: jnp.asarray(0.05 * rng.standard_normal(leaf.shape, np.float32)),
            self.params,
        )

        def time_row() -> float:
            start, variables, result = time.process_time(), self.variables, None
            for _ in range(self.num_calls):
                result, variables = self.call(params, variables, *inputs)
            jax.block_until_ready(result)
            return time.process_time() - start

        return time_row


def compile_program(spec: LongRowModel, length: int, kind: str) -> CompiledPass:
    """Return the forward pass, or the gradient, of a model on a row of so many tokens.

    kind: one of PASSES.
    """
    shape = (1, SEGMENT if spec.in_segments else length)
    model = make_model(spec, length)
    ids = jax.ShapeDtypeStruct(shape, jnp.int32)
    mask = (jax.ShapeDtypeStruct(shape, bool),) if spec.reads_mask else ()
    init = partial(model.init, jax.random.key(0), method=spec.method)
    shapes = dict(jax.eval_shape(init, ids, *mask))
    params = shapes.pop("params")
    variables = (
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        if spec.in_segments
        else {}
    )

    def encode(
        params: Any, variables: Any, ids: jax.Array, *mask: jax.Array
    ) -> tuple[jax.Array, Any]:
        apply = partial(model.apply, {"params": params, **variables}, ids, *mask)
        if spec.in_segments:
            return apply(method=spec.method, mutable=[SEGMENT_MEMORY])
        states = apply(method=spec.method)
        return (states[0] if isinstance(states, tuple) else states), {}

    def compute_loss(params: Any, variables: Any, *inputs: jax.Array) -> tuple[jax.Array, Any]:
        x_BLD, variables = encode(params, variables, *inputs)
        return jnp.square(x_BLD).mean(), variables

    def differentiate(params: Any, variables: Any, *inputs: jax.Array) -> tuple[Any, Any]:
        (_, variables), gradient = jax.value_and_grad(compute_loss, has_aux=True)(
            params, variables, *inputs
        )
        return gradient, variables

    call = jax.jit(encode if kind == "forward" else differentiate)
    compiled = call.lower(params, variables, ids, *mask).compile()
    return CompiledPass(compiled, params, variables, shape, bool(mask), length // shape[1])


def measure_lengths(
    lengths: Sequence[int], rounds: int, most_bytes: float, most_seconds: float
) -> Measures:
    """Return the figures of all models.

    Memory is measured up to the first length that needs more than so many bytes, time of those that
    need at most so many bytes and seconds. All models at all lengths take turns, so that what else
    the machine does slows all of them.
    """
    measures: Measures = {(quantity, kind): {} for quantity in QUANTITIES for kind in PASSES}
    timers = {}
    for length in lengths:
        for kind, spec in itertools.product(PASSES, MODELS):
            sizes = measures["memory", kind].setdefault(spec.name, {})
            if max(sizes.values(), default=0) > most_bytes:
                continue
            program = compile_program(spec, length, kind)
            sizes[length] = program.temporary_bytes
            if program.temporary_bytes <= most_bytes:
                time_row = program.make_timer()
                if time_row() <= most_seconds:
                    timers[kind, spec.name, length] = time_row
        print(f"n = {length:,} is compiled, load {os.getloadavg()[0]:.1f}", flush=True)
    seconds = [{key: time_row() for key, time_row in timers.items()} for _ in range(rounds)]
    for key in timers:
        kind, name, length = key
        median = float(np.median([found[key] for found in seconds]))
        measures["time", kind].setdefault(name, {})[length] = median
    return measures


def fit_exponent(found: Mapping[int, float]) -> float | None:
    """Return the exponent of n by least squares of the logarithms; None of fewer than 3 lengths."""
    fitted = {length: value for length, value in found.items() if length >= FIRST_FITTED}
    if len(fitted) < 3:
        return None
    return float(np.polyfit(np.log(list(fitted)), np.log(list(fitted.values())), 1)[0])


def format_figures(measures: Measures, quantity: str, kind: str) -> list[str]:
    """Return the table of a quantity by model and length."""
    unit, factor, style = QUANTITIES[quantity]
    found = measures[quantity, kind]
    lengths = sorted({length for row in found.values() for length in row})
    head = " | ".join(f"n = {length:,}" for length in lengths)
    lines = [
        f"| {quantity} of the {kind} pass, {unit} | {head} |",
        "|---" * (len(lengths) + 1) + "|",
    ]
    for name, row in found.items():
        cells = [f"{row[n] * factor:{style}}" if n in row else "" for n in lengths]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def format_exponents(measures: Measures) -> list[str]:
    """Return the table of exponents, of what is claimed at most, and of whether it holds."""
    head = [f"{quantity}, {kind}" for quantity, kind in measures]
    lines = [f"| exponent of n | {' | '.join(head)} | claim | holds |", "|---" * 7 + "|"]
    for spec in MODELS:
        fitted = [fit_exponent(found.get(spec.name, {})) for found in measures.values()]
        cells = ["" if value is None else f"{value:.2f}" for value in fitted]
        known, claim = [value for value in fitted if value is not None], ["", ""]
        if spec.exponents and known:
            least, most = spec.exponents
            claim = [f"{least:g} to {most:g}" if least else f"at most {most:g}"]
            claim.append("yes" if least <= min(known) and max(known) <= most else "no")
        lines.append(f"| {spec.name} | {' | '.join([*cells, *claim])} |")
    return lines


def draw_measures(measures: Measures, quantity: str, path: pathlib.Path) -> None:
    """Draw a quantity against n, of the forward pass and of the gradient, as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    unit, factor, _ = QUANTITIES[quantity]
    names = [spec.name for spec in MODELS]
    style = {"svg.fonttype": "none", "svg.hashsalt": NAME, "font.size": 9}
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
        for ax, kind in zip(axes, PASSES, strict=True):
            for name, row in measures[quantity, kind].items():
                number = names.index(name)
                values = factor * np.array(list(row.values()))
                marker = "osD^vPX*"[number % 8]
                ax.plot(list(row), values, f"{marker}-", color=f"C{number}", label=name, ms=4)
            lengths = sorted({n for row in measures[quantity, kind].values() for n in row})
            ax.set(xscale="log", yscale="log", title=kind, xlabel="n, tokens of a row")
            ax.set_xticks(lengths, [f"{length:,}" for length in lengths])
            ax.minorticks_off()
            ax.grid(alpha=0.3)
        axes[0].set_ylabel(f"{quantity} of a row, {unit}")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def make_section(measures: Measures, rounds: int, limits: str, load: float) -> list[str]:
    """Return the section of the page; limits: of what is timed, as the page names them."""
    tables = [
        ["", *format_figures(measures, quantity, kind)]
        for quantity in QUANTITIES
        for kind in PASSES
    ]
    models = "; ".join(f"{spec.name}: {spec.description}" for spec in MODELS)
    return [
        format_title(load, f"JAX {jax.__version__}"),
        "",
        f"`{format_command()}`: one layer of width 128 with heads of width 64, one row of n "
        f"tokens, float32. {models}.",
        "",
        f"Time: seconds of all processor cores, the median of {rounds} rounds, in which all models "
        "at all lengths take turns, in pages of 2 MiB; not timed above "
        f"{limits}. Memory: temporaries as compiled. Exponents: least squares of the logarithms "
        f"from n = {FIRST_FITTED:,}. A load above the number of cores: other programs ran.",
        "",
        *format_exponents(measures),
        *(line for table in tables for line in table),
        "",
        "![time](long_rows_time.svg) ![memory](long_rows_memory.svg)",
    ]


def list_lengths(longest: int) -> Sequence[int]:
    """Return the lengths, which double from 512."""
    return [512 << i for i in range(longest.bit_length()) if 512 << i <= longest]


def main() -> None:
    """Measure every length, and write the page and the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--longest", type=int_at_least(512), default=16_384, help="row in tokens")
    parser.add_argument("--rounds", type=int_at_least(1), default=5)
    parser.add_argument("--gib", type=int_at_least(1), default=6, help="of temporaries, at most")
    parser.add_argument("--seconds", type=duration, default=40.0, help="of a row, at most")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1,024; write nothing")
    args = parser.parse_args()
    if not HUGE_PAGES.items() <= os.environ.items():
        command = [sys.executable, "-m", "benchmarks.speed.long_rows", *sys.argv[1:]]
        os.execve(sys.executable, command, dict(os.environ) | HUGE_PAGES)
    load = os.getloadavg()[0]
    rounds, longest = (2, min(args.longest, 1_024)) if args.quick else (args.rounds, args.longest)
    measures = measure_lengths(list_lengths(longest), rounds, args.gib * 2.0**30, args.seconds)
    limits = f"{args.gib} GiB or {args.seconds:g} s"
    lines = make_section(measures, rounds, limits, load)
    if args.quick:
        print("\n".join(lines))
        return
    add_result(NAME, lines, "Long rows: time and memory by length")
    for quantity in QUANTITIES:
        draw_measures(measures, quantity, RESULTS / f"{NAME}_{quantity}.svg")


if __name__ == "__main__":
    main()
