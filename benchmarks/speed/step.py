"""Time a training step of Cloze and of PyTorch: same model, weights, batch, dropout and AdamW.

    python -m benchmarks.speed.step [--cases bert_mini,t5_small] [--types float32,bfloat16]
      [--length 128] [--rounds 5] [--steps 3] [--device gpu]

Programs take turns, each in its own process:

- Cloze: the step that `train` runs, with unrolled layers (`model.scan=false`) and the environment
  variables of launch.sh. "a second" counts the tokens of a batch, inputs and targets, or its
  images. "of matmul" is the share of the model's FLOP/s in the rate of square float32 matmuls of
  1,024 on the same cores. It relates the best step to the best rate; the rate is measured in each
  round.
- trainer: `transformers.Trainer` with default settings in a plain environment; it computes the
  logits of every token. A step lasts from the end of the step before to its own end, including
  data loader and collator. The first step of a turn starts with its batch already loaded.
- trainer_compiled (only with `--ways`): the same with the Trainer's `torch_compile=True`.
- tuned: the same model in a hand-written loop that computes the logits of masked positions only.
  glibc keeps its pages and MKL is made to use AVX-512.
- compiled: the same with `torch.compile`.

ViT reads images of 224 x 224 pixels. Cloze's step normalises them; the others get them normalised.

T5 trains without dropout in all programs: transformers drops single elements and models/t5.py
whole positions, which is different work. bfloat16 is autocast in PyTorch and `train.compute_dtype`
in Cloze; parameters and moments are always float32. All programs start from the same weights, and
their losses without dropout must agree before anything is timed. A dated section is appended to
benchmarks/results/step.md, also for the cases completed before one fails.

--device gpu runs the same on the first GPU that JAX and torch find, with the larger models of
GPU_CASES (step_cases.py). Their attention weights are not dropped, so that Cloze can use cuDNN's
attention and PyTorch its fused attention. "of matmul" is then relative to the chip's published rate
(pretrain/training/accelerators.py), and memory is the device's. It needs `pip install
'jax[cuda13]'`, no TensorFlow, and in CLOZE_PEERS_PYTHON the path of a Python with a torch for that
GPU, transformers and accelerate: the default environment has a CPU-only torch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    NO_CACHE,
    ROOT,
    Worker,
    format_command,
    format_spread,
    format_title,
    int_at_least,
    interleave_workers,
    report_errors,
    some_of,
)
from benchmarks.peer_environment import find_peers_python, make_mkl_environment  # fmt: skip
from benchmarks.results_pages import add_result
from benchmarks.speed.step_cases import DEVICES, make_batch

# Relative tolerance of the losses before the first step. They differed by 2e-7 (float32) and 3e-5
# (bfloat16) for bert_mini, t5_small and gpt2 on a CPU. With random weights the attention mask has
# little effect: hiding half of a row changes bert_mini's loss by 2e-5, a causal mask by 7e-5, no
# mask at all changes gpt2's by 1e-4. Only the bound of float32 detects a wrong mask.
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-4}
GPU_TOLERANCE = 10  # times as much: float32 products are computed in TF32, attention in blocks
# PyTorch program -> whether it is tuned by hand, and its environment too.
WAYS = {
    "trainer": False,
    "trainer_compiled": False,
    "tuned": True,
    "compiled": True,
}


def measure_case(
    name: str, compute: str, length: int, args: argparse.Namespace, folder: pathlib.Path
) -> dict[str, Any]:
    """Run all programs on one case.

    Args:
      name: the case.
      compute: dtype of the computation.
      length: tokens of a row.
      folder: where to exchange the batch and the weights; it is created.

    Returns:
      {ready, ms, peak, steps, rate}: the programs' first answers, the milliseconds of a step
      [rounds], the peak memory and the steps' in MiB, each by program, and the rate of
      matmuls in GFLOP/s.
    """
    cases, platform = DEVICES[args.device]
    family, model, *rows = cases[name]
    folder.mkdir()
    case = {
        "family": family,
        "model": model | {"scan": False},
        "compute": compute,
        "length": length,
        "rows": rows[length == 512],
    }
    case |= {"folder": str(folder), "device": args.device}
    arrays: dict[str, Any] = make_batch(family, length, case["rows"])
    np.savez(folder / "batch.npz", **arrays)
    case = json.dumps(case)
    with contextlib.ExitStack() as stack:
        workers = {
            "cloze": stack.enter_context(
                Worker(
                    [sys.executable, "-m", "benchmarks.speed.step_cloze", case],
                    MALLOC_ENVIRONMENT | NO_CACHE | platform,
                )
            )
        }
        ready = {"cloze": workers["cloze"].read_answer()}
        for way in args.ways:
            environment = (
                MALLOC_ENVIRONMENT | make_mkl_environment() | platform if WAYS[way] else platform
            )
            argv = [find_peers_python(), ROOT / "benchmarks" / "speed" / "step_torch.py", case, way]
            workers[way] = stack.enter_context(Worker(argv, environment))
            ready[way] = workers[way].read_answer()
        tolerance = TOLERANCE[compute] * (GPU_TOLERANCE if args.device == "gpu" else 1)
        check_losses(name, compute, {way: ready[way]["loss"] for way in ready}, tolerance)
        interleave_workers(workers, 1, steps=2)
        answers = interleave_workers(workers, args.rounds, steps=args.steps)
    ms = {
        way: 1000 * np.array([reply["seconds"] for reply in replies])
        for way, replies in answers.items()
    }
    steps = {way: replies[-1]["memory"] for way, replies in answers.items()}
    peak = {way: max(ready[way]["memory"], steps[way]) for way in steps}
    rate = max(reply["rate"] for reply in (ready["cloze"], *answers["cloze"]))
    return {"ready": ready, "ms": ms, "peak": peak, "steps": steps, "rate": rate}


def check_losses(name: str, compute: str, losses: Mapping[str, float], tolerance: float) -> None:
    """Raise RuntimeError unless all programs start with the loss of Cloze.

    Args:
      name, compute: the case and the dtype.
      losses: {program: loss}.
      tolerance: the relative difference that rounding explains.
    """
    ours = losses["cloze"]
    for program, loss in losses.items():
        if not np.isclose(loss, ours, rtol=tolerance, atol=0):
            raise RuntimeError(
                f"{name}, {compute}: the first loss is {ours} in Cloze and {loss} in {program}: "
                "the programs do not do the same work"
            )


def format_times(facts: Mapping[str, Any], ways: Sequence[str]) -> dict[str, str]:
    """Return {column: cell} of the time of a step.

    Args:
      facts: the result of `measure_case`.
    """
    ms, ready = facts["ms"], facts["ready"]["cloze"]
    count_per_second = lambda way: (  # noqa: E731
        f"{1000 * ready['positions'] / np.median(ms[way]):,.0f} {ready['unit']}"
    )
    cells = {
        "Cloze, ms": format_spread(ms["cloze"]),
        "Cloze, a second": count_per_second("cloze"),
        "of matmul": f"{ready['flops'] / ms['cloze'].min() / 1e6 / facts['rate']:.0%}",
    }
    for way in ways:
        cells |= {
            f"{way}, ms": format_spread(ms[way]),
            f"{way}, a second": count_per_second(way),
            f"{way} / Cloze": format_spread(ms[way] / ms["cloze"], ".2f"),
        }
    return cells | {
        "to the first step, s": " / ".join(f"{facts['ready'][way]['compile']:.0f}" for way in ms)
    }


def format_sizes(facts: Mapping[str, Any], ways: Sequence[str]) -> dict[str, str]:
    """Return {column: cell} of the memory of a step.

    Args:
      facts: the result of `measure_case`.
    """
    cells = {
        f"{label}, MiB": " / ".join(f"{mib:,.0f}" for mib in facts[key].values())
        for key, label in (("peak", "peak"), ("steps", "peak of the steps"))
    }
    return cells | {
        f"memory, Cloze / {way}": f"{facts['steps']['cloze'] / facts['steps'][way]:.2f}"
        for way in ways
    }


CELLS_BY_VIEW = {"times": (format_times, format_sizes), "memory": (format_sizes,)}


def append_page(
    args: argparse.Namespace, load: float, rows: Sequence[dict[str, str]], versions: Sequence[str]
) -> None:
    """Append a section with the completed rows to the result page."""
    num_cases = len(args.cases) * len(args.types)
    failed = f" It failed after {len(rows)} of {num_cases} rows." if len(rows) < num_cases else ""
    note = (
        f"`{format_command()}`: {args.length} tokens a row; milliseconds a step: the median of "
        f"{args.rounds} rounds of {args.steps} steps and, in brackets, the minimum and the "
        "maximum; ratios likewise, computed in each round. Cells with several figures are in the "
        "order of the programs. The peak is the whole process's; Cloze's includes the weights that "
        "it writes for the others. The peak of the steps is counted after the first step, and the "
        f"last ratios are of it.{failed}"
    )
    lines = [
        f"| {' | '.join(rows[0])} |",
        "|---" * len(rows[0]) + "|",
        *(f"| {' | '.join(cells.values())} |" for cells in rows),
    ]
    add_result("step", [format_title(load, *dict.fromkeys(versions)), "", note, "", *lines])


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--cases", help="default: all cases of the device")
    parser.add_argument("--types", type=some_of(TOLERANCE), default=list(TOLERANCE))
    parser.add_argument("--length", type=int, choices=(128, 512), default=128)
    parser.add_argument("--rounds", type=int_at_least(1), default=5)
    parser.add_argument(
        "--steps",
        type=int_at_least(1),
        default=3,
        help="steps of a program before the next program's turn",
    )
    parser.add_argument(
        "--show",
        choices=CELLS_BY_VIEW,
        default="times",
        help="memory: omit the times, which mean nothing on a busy machine",
    )
    ways = f"of {','.join(WAYS)}; '' runs Cloze only"
    parser.add_argument(
        "--ways",
        type=some_of(WAYS, min_names=0),
        default=["trainer", "tuned", "compiled"],
        help=ways,
    )
    args = parser.parse_args()
    cases, _ = DEVICES[args.device]
    try:
        args.cases = list(cases) if args.cases is None else some_of(cases)(args.cases)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --cases, on a {args.device}: {error}")
    if args.ways:
        with report_errors(parser):
            find_peers_python()
    return args


def main() -> None:
    args = parse_arguments()
    load = os.getloadavg()[0]
    rows, versions = [], []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in args.cases:
                for compute in args.types:
                    facts = measure_case(
                        name, compute, args.length, args, pathlib.Path(folder) / f"{name}_{compute}"
                    )
                    cells = {"model": name, "type": compute, "length": str(args.length)}
                    for make_cells in CELLS_BY_VIEW[args.show]:
                        cells |= make_cells(facts, args.ways)
                    rows.append(cells)
                    versions += [
                        version
                        for ready in facts["ready"].values()
                        for version in (*ready["hardware"], *ready["versions"])
                    ]
                    print(" | ".join(cells.values()), file=sys.stderr, flush=True)
    finally:
        if rows:
            append_page(args, load, rows, versions)


if __name__ == "__main__":
    main()
