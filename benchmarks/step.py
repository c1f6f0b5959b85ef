"""How long a training step takes, beside PyTorch's: the same model, weights, shapes and batch, dropout on, AdamW, gradients clipped.

    python -m benchmarks.step [--cases bert_mini,t5_small] [--types float32,bfloat16] [--length 128] [--rounds 5] [--steps 3] [--device gpu]

Programs take turns, each in a process of its own:

- Cloze: the step that `train` runs, layers unrolled (`model.scan=false`), under the environment that launch.sh sets; the share is that of the
  useful FLOPs in what square matmuls of 1,024 reach on the same cores, in float32: the best step's of the best rate, which is measured in each round;
- trainer: `transformers.Trainer` as it comes, in a plain environment, every word scored; a step lasts from the end of the one before to its own,
  data loader and collator included, but for the first of a turn, which begins with its batch at hand;
- trainer_compiled, by `--ways`: the same with the Trainer's own `torch_compile=True`;
- tuned: the same model in a loop of its own, only masked positions scored, glibc keeping its pages, MKL made to take its AVX-512 path;
- compiled: the same, by `torch.compile`.

T5 trains without dropout in all of them: transformers' drops element by element, models/t5.py whole positions, so that its bits are not the same work.
bfloat16 is autocast there and `train.compute_dtype` here; parameters and moments are float32 everywhere. All begin with the same weights, and the losses
without dropout of what is timed must agree before anything is timed. A dated section is appended to benchmarks/results/step.md; where a case
fails, one of those before it.

--device gpu: the same on the first GPU that JAX and torch find, with the larger models of GPU_CASES, whose attention weights are not
dropped, so that cuDNN's attention can serve here as PyTorch's fused one does there. The share is of the chip's published rate
(pretrain/training/accelerators.py), memory is that of the device. It needs `pip install 'jax[cuda13]'`, no TensorFlow, and in CLOZE_PEERS_PYTHON the path of a Python
that has a torch for that GPU, transformers and accelerate: the environment that is made otherwise has a torch for the CPU alone. It was written
without a GPU and has never run on one.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile

import numpy as np

from benchmarks.harness import (
    KEEP_PAGES,
    NO_CACHE,
    ROOT,
    Worker,
    append,
    at_least,
    command,
    intel_path,
    interleaved,
    peers_python,
    some_of,
    spread,
    title,
    told_plainly,
)  # fmt: skip
from data.objectives import SpanCorruption

# name: (family, words of its configuration, rows of 128, rows of 512)
CASES = {
    "bert_mini": ("bert", {"width": 256, "depth": 4, "num_heads": 4, "mlp": 1024}, 32, 8),
    "bert_small": ("bert", {"width": 512, "depth": 4, "num_heads": 8, "mlp": 2048}, 16, 4),
    "bert_base": ("bert", {}, 8, 2),
    "t5_small": (
        "t5",
        {"width": 512, "depth": 6, "decoder_depth": 6, "num_heads": 8, "mlp": 2048, "dropout": 0.0},
        16,
        4,
    ),
    "gpt2": ("gpt2", {}, 4, 1),
}
LARGE = {"width": 1024, "depth": 24, "num_heads": 16, "mlp": 4096}
GPU_CASES = {
    "bert_base": ("bert", {"attention_dropout": 0.0}, 512, 128),
    "bert_large": ("bert", LARGE | {"attention_dropout": 0.0}, 256, 64),
    "t5_base": ("t5", {"dropout": 0.0}, 256, 64),
    "t5_large": ("t5", LARGE | {"decoder_depth": 24, "dropout": 0.0}, 128, 32),
    "gpt2": ("gpt2", {"attention_dropout": 0.0}, 256, 64),
}
# device: (its cases, what programs are told)
DEVICES = {
    "cpu": (CASES, {"JAX_PLATFORMS": "cpu"}),
    "gpu": (
        GPU_CASES,
        {
            "JAX_PLATFORMS": "cuda",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "CUDA_VISIBLE_DEVICES": "0",
        },
    ),  # which all share
}
# Of the losses before the first step, relative. They were 2e-7 and 3e-5 apart (bert_mini, t5_small, gpt2 on a CPU). Random weights tell little of a
# mask: one that hides half of a row moves bert_mini's loss by 2e-5, a causal one by 7e-5, none at all gpt2's by 1e-4; float32's bound is what tells.
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-4}
WAYS = {
    "trainer": False,
    "trainer_compiled": False,
    "tuned": True,
    "compiled": True,
}  # whether it is tuned by hand, its environment too


def batch_of(family, length, rows):
    """Random ids, every place of them real: {key: array} of the objective's batch spec."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.integers(1000, 30000, shape).astype(np.int32)  # noqa: E731
    ones = lambda *shape: np.ones(shape, np.float32)  # noqa: E731
    valid = np.ones((rows, length), bool)
    match family:
        case "bert":
            P = -(-length * 15 // 100)
            positions = np.sort(
                rng.permuted(np.tile(np.arange(length, dtype=np.int32), (rows, 1)), axis=1)[:, :P],
                axis=1,
            )
            return {
                "token_ids": draw(rows, length),
                "attention_mask": valid,
                "masked_positions": positions,
                "labels": draw(rows, P),
                "label_weights": ones(rows, P),
            }
        case "t5":
            T = SpanCorruption(inputs=length).dims()["T"]
            return {
                "encoder_token_ids": draw(rows, length),
                "encoder_attention_mask": valid,
                "labels": draw(rows, T),
                "label_weights": ones(rows, T),
            }
        case "gpt2":
            ids, weights = draw(rows, length + 1), ones(rows, length)
            weights[:, -1] = 0  # transformers shifts a row within itself
            return {"token_ids": ids[:, :-1], "labels": ids[:, 1:], "label_weights": weights}


def measure(name, compute, length, args, folder):
    """A row of the table, and its facts."""
    cases, platform = DEVICES[args.device]
    family, words, *rows = cases[name]
    folder.mkdir()
    case = {
        "family": family,
        "model": words | {"scan": False},
        "compute": compute,
        "length": length,
        "rows": rows[length == 512],
    }
    case |= {"folder": str(folder), "device": args.device}
    np.savez(folder / "batch.npz", **batch_of(family, length, case["rows"]))
    case = json.dumps(case)
    with contextlib.ExitStack() as stack:
        workers = {
            "cloze": stack.enter_context(
                Worker(
                    [sys.executable, "-m", "benchmarks.step_cloze", case],
                    KEEP_PAGES | NO_CACHE | platform,
                )
            )
        }
        ready = {"cloze": workers["cloze"].hear()}
        for way in args.ways:
            own = KEEP_PAGES | intel_path() | platform if WAYS[way] else platform
            words = [peers_python(), ROOT / "benchmarks" / "step_torch.py", case, way]
            workers[way] = stack.enter_context(Worker(words, own))
            ready[way] = workers[way].hear()
        check_losses(name, compute, {program: told["loss"] for program, told in ready.items()})
        interleaved(workers, 1, steps=2)
        found = interleaved(workers, args.rounds, steps=args.steps)
    ms = {
        way: 1000 * np.array([reply["seconds"] for reply in replies])
        for way, replies in found.items()
    }
    steps = {way: replies[-1]["memory"] for way, replies in found.items()}
    peak = {way: max(ready[way]["memory"], steps[way]) for way in steps}
    rate = max(told["rate"] for told in (ready["cloze"], *found["cloze"]))
    return {"ready": ready, "ms": ms, "peak": peak, "steps": steps, "rate": rate}


def check_losses(name, compute, losses):
    """Raise RuntimeError unless all programs begin with the loss of Cloze; losses: {program: loss}."""
    ours = losses["cloze"]
    for program, loss in losses.items():
        if not np.isclose(loss, ours, rtol=TOLERANCE[compute], atol=0):
            raise RuntimeError(
                f"{name}, {compute}: the first loss is {ours} here and {loss} by {program}: not the same work"
            )


def times(facts, ways):
    """{column: cell} of how long a step takes."""
    ms, ready = facts["ms"], facts["ready"]["cloze"]
    cells = {
        "Cloze, ms": spread(ms["cloze"]),
        "of matmul": f"{ready['flops'] / ms['cloze'].min() / 1e6 / facts['rate']:.0%}",
    }
    for way in ways:
        cells |= {
            f"{way}, ms": spread(ms[way]),
            f"{way} / Cloze": spread(ms[way] / ms["cloze"], ".2f"),
        }
    return cells | {
        "to the first step, s": " / ".join(f"{facts['ready'][way]['compile']:.0f}" for way in ms)
    }


def sizes(facts, ways):
    """{column: cell} of what it takes of memory."""
    cells = {
        f"{what}, MiB": " / ".join(f"{mib:,.0f}" for mib in facts[key].values())
        for key, what in (("peak", "peak"), ("steps", "peak of the steps"))
    }
    return cells | {
        f"memory, Cloze / {way}": f"{facts['steps']['cloze'] / facts['steps'][way]:.2f}"
        for way in ways
    }


SHOWN = {"times": (times, sizes), "memory": (sizes,)}


def page(args, load, rows, versions):
    """Append a section of the rows that there are."""
    wanted = len(args.cases) * len(args.types)
    note = (
        f"`{command()}`: {args.length} tokens a row; milliseconds a step, the median of the rounds (there were {args.rounds}, of {args.steps} steps) and "
        "in brackets the least and the most; ratios likewise, of each round's. Cells with strokes are in the order of the programs. The peak is the "
        "process's, Cloze's with the weights that it writes for the others; that of the steps begins anew behind the first one, and the last ratios are "
        "of it."
        f"{f' It ended behind {len(rows)} of {wanted} rows.' if len(rows) < wanted else ''}"
    )
    lines = [
        f"| {' | '.join(rows[0])} |",
        "|---" * len(rows[0]) + "|",
        *(f"| {' | '.join(cells.values())} |" for cells in rows),
    ]
    append("step.md", [title(load, *dict.fromkeys(versions)), "", note, "", *lines])


def asked():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--cases", help="all of the device's unless given")
    parser.add_argument("--types", type=some_of(TOLERANCE), default=list(TOLERANCE))
    parser.add_argument("--length", type=int, choices=(128, 512), default=128)
    parser.add_argument("--rounds", type=at_least(1), default=5)
    parser.add_argument(
        "--steps",
        type=at_least(1),
        default=3,
        help="steps of a program before the next has its turn",
    )
    parser.add_argument(
        "--show",
        choices=SHOWN,
        default="times",
        help="memory: times mean nothing on a busy machine, and are left out",
    )
    ways = f"of {','.join(WAYS)}; '' is Cloze alone"
    parser.add_argument(
        "--ways", type=some_of(WAYS, least=0), default=["trainer", "tuned", "compiled"], help=ways
    )
    args = parser.parse_args()
    cases, _ = DEVICES[args.device]
    try:
        args.cases = list(cases) if args.cases is None else some_of(cases)(args.cases)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --cases, on a {args.device}: {error}")
    if args.ways:
        with told_plainly(parser):
            peers_python()
    return args


def main():
    args = asked()
    load = os.getloadavg()[0]
    rows, versions = [], []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in args.cases:
                for compute in args.types:
                    facts = measure(
                        name, compute, args.length, args, pathlib.Path(folder) / f"{name}_{compute}"
                    )
                    cells = {"model": name, "type": compute, "length": str(args.length)}
                    for part in SHOWN[args.show]:
                        cells |= part(facts, args.ways)
                    rows.append(cells)
                    versions += [
                        version
                        for ready in facts["ready"].values()
                        for version in (*ready["hardware"], *ready["versions"])
                    ]
                    print(" | ".join(cells.values()), file=sys.stderr, flush=True)
    finally:
        if rows:
            page(args, load, rows, versions)


if __name__ == "__main__":
    main()
