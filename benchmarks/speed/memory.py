"""Measure the memory that a training step needs for its token logits and its attention.

    python benchmarks/speed/memory.py [--only gpt2]

Each row compiles the whole step of a configuration for a TPU slice, with libtpu on this machine's
CPU: with the logits of all tokens at once or in parts (`pretrain/training/cross_entropy.py`), and
with XLA's attention or Splash attention (`pretrain/kernels/attention/choice.py`). Nothing
runs: bytes are the compiler's, times are the bounds of `plan`. Writes
benchmarks/results/memory.md.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import math
import pathlib
import platform
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

# (configuration, slice, overrides)
CASES = (
    ("t5_base", "v5e:4x4", []),
    ("gpt2", "v5p:2x2x4", []),
    ("gpt2", "v5p:2x2x4", ["model.attention_dropout=0"]),
    ("gpt2", "v5e:4x4", ["model.attention_dropout=0", "model.remat=true"]),
)
# (name, all logits at once, XLA's attention)
VARIANTS = (
    ("all scores at once, XLA's attention", True, True),
    ("scores in parts, XLA's attention", False, True),
    ("scores in parts", False, False),
)


def measure_variant(
    config: str,
    topology: str,
    overrides: Sequence[str],
    all_scores_at_once: bool,
    use_xla_attention: bool,
) -> dict[str, Any]:
    """Compile one variant.

    Args:
      overrides: of the configuration.
      all_scores_at_once: whether to compute all logits at once.
      use_xla_attention: whether to use XLA's attention.

    Returns:
      {fits, temporary, peak, moved, bound, kernels}: GiB, GiB through HBM and the bound in ms; or
      {fits, needed, kernels} if it does not fit.
    """
    from pretrain.config import load
    from pretrain.kernels.attention.plain import attend
    from pretrain.mesh.sharding import make_mesh
    from pretrain.plan import topology as machines
    from pretrain.plan.compile import compile_update
    from pretrain.plan.hlo import HloModule
    from pretrain.plan.roofline import compute_roofline
    from pretrain.plan.work import count_work
    from pretrain.training.program import make_program

    run, machine = load(config, list(overrides)), machines.make_tpu_machine(topology)
    mesh = make_mesh(run.mesh, machine.devices)
    options: dict[str, Any] = {"scores_at_once": math.inf} if all_scores_at_once else {}
    patch = mock.patch("pretrain.kernels.model_hooks.make_attend", return_value=attend)
    with patch if use_xla_attention else contextlib.nullcontext():
        program = make_program(run, mesh, **options)
    compiled = compile_update(run, mesh, program)
    kernels = "XLA" if use_xla_attention else "; ".join(program.attention["update"])
    if compiled.text is None or compiled.memory_sizes is None:
        return {
            "kernels": kernels,
            "needed": compiled.needed_bytes and compiled.needed_bytes / 2**30,
            "fits": False,
        }
    module = HloModule(compiled.text)
    jaxpr = program.train_step.trace(program.describe_state(), program.batch).jaxpr
    work = count_work(module, jaxpr, mesh, machine)
    roof = compute_roofline(*work, mesh, machine)
    return {
        "fits": True,
        "temporary": compiled.memory_sizes["temp"] / 2**30,
        "peak": compiled.memory_sizes["peak"] / 2**30,
        "moved": work.memory_bytes / 2**30,
        "bound": roof.bound_seconds * 1e3,
        "kernels": kernels,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(config for config, *_ in CASES))
    parser.add_argument("--only", choices=names, help="one configuration; the page is not written")
    args = parser.parse_args()
    from benchmarks.results_pages import add_result
    from pretrain.plan import topology as machines

    machines.configure_environment()
    lines = []
    for config, topology, words in CASES:
        if args.only not in (None, config):
            continue
        for name, whole, plain in VARIANTS:
            result = measure_variant(config, topology, words, whole, plain)
            if not result["fits"]:
                cells = [f"does not fit (needs {result['needed'] or math.nan:.1f})", "", "", ""]
            else:
                cells = [f"{result[key]:.2f}" for key in ("temporary", "peak", "moved")] + [
                    f"{result['bound']:.1f}"
                ]
            case = f"`{' '.join([config, *words])}` on {topology}"
            lines.append(f"| {case} | {name} | {' | '.join(cells)} | {result['kernels']} |")
            print(lines[-1], flush=True)
    if args.only:
        return
    head = [
        f"## {datetime.date.today()}, compiled by libtpu {importlib.metadata.version('libtpu')} on "
        f"a CPU ({platform.processor() or platform.machine()})",
        "",
        "`python benchmarks/speed/memory.py`: nothing was run. GiB and milliseconds a chip and "
        "step; ms are the roofline's bound.",
        "",
        "| configuration | scores and attention | temporary | peak | through HBM | ms, at least "
        "| kernels |",
        "|---|---|---|---|---|---|---|",
    ]
    add_result("memory", [*head, *lines], "Memory of a step: token logits and attention")


if __name__ == "__main__":
    main()
