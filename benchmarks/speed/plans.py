"""Make the tables of plans: all terms, a short table for each slice, a few rows for docs/plans.md.

    python -m benchmarks.speed.plans      compile what the recorded run lacks; then write the page
    python -m benchmarks.speed.plans --compiled                   record what is already compiled
    python -m benchmarks.speed.plans --only bert_large --quick    print rows, record nothing

Each row is what `python -m pretrain plan` reports of the training step, compiled by libtpu for a
slice on this machine's CPU, which takes minutes. benchmarks/results/plans/run.json records each
plan as it ends, with a hash of the program that was compiled. A run keeps a recorded plan if the
program, the versions and the code that counts are still the same, and makes the others. Programs
are kept in ~/.cache/cloze/plans, so that another count compiles nothing. The page has the recorded
plans, so each of its rows is of the present program when all are there.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.speed.plan_cases import EXAMPLES, PLANS, Plan
from benchmarks.speed.plan_hashes import hash_counting, hash_program
from benchmarks.speed.plan_programs import FOLDER, find_file, read_program, write_program
from pretrain.plan.roofline import format_share
from pretrain.pod.tpu_types import GENERATIONS

PAGE = ROOT / "benchmarks" / "results" / "plans.md"
SLICES_PAGE = ROOT / "benchmarks" / "results" / "plans_by_slice.md"
EXAMPLES_PAGE = ROOT / "docs" / "plans.md"
RECORD = ROOT / "benchmarks" / "results" / "plans" / "run.json"
BEGIN, END = "<!-- plans: written by benchmarks/speed/plans.py -->", "<!-- end of plans -->"
PACKAGES = ("jax", "jaxlib", "libtpu", "flax", "optax")
GIB = 2**30

COLUMNS = (
    "configuration",
    "slice (chips)",
    "data x fsdp x sequence x model",
    "GiB a chip at the peak",
    "FLOPs a step",
    "ms a step, at least",
    "matmul / vector / memory / sent behind matmuls / sent and waited for",
    "floor: matmul / memory / exchange",
    "floor / ms a step",
    "MFU at most",
    "without masked pairs",
    "HFU at most",
    "days, at least",
    "attention",
    "gathered against the rules",
)

SHORT_COLUMNS = ("configuration", "chips' mesh", "GiB a chip", "ms a step", "MFU", "days")
EXAMPLE_COLUMNS = ("slice", *SHORT_COLUMNS)


def main() -> None:
    """Compile the plans that the record lacks and write the page, or print some rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        choices=sorted({plan.config for plan in PLANS}),
        metavar="CONFIGURATION",
        help="print its rows and record nothing",
    )
    parser.add_argument("--quick", action="store_true", help="with --only: as `plan --quick`")
    parser.add_argument("--compiled", action="store_true", help="compile nothing")
    args = parser.parse_args()
    from pretrain.plan.topology import configure_environment

    configure_environment()
    import jax

    # Without the places in the code: they do not change what runs, but are in the text of kernels.
    jax.config.update("jax_traceback_in_locations_limit", 0)
    if args.only:
        for plan in (plan for plan in PLANS if plan.config == args.only):
            print(format_row(plan, compile_plan(plan, args.quick)), flush=True)
        return
    if args.quick:
        parser.error("the page has the figures of the real settings; --quick goes with --only")
    record = open_record()
    for plan in PLANS:
        program = hash_program(plan.config, plan.topology, plan.overrides.split())
        path = find_file(FOLDER, program, plan.topology, record["versions"])
        if record["plans"].get(plan.key, {}).get("program") != program:
            if args.compiled and not path.exists():
                record["plans"].pop(plan.key, None)
                write_record(record)
                continue
            record["plans"][plan.key] = compile_plan(plan, path=path) | {"program": program}
            write_record(record)
        print(format_row(plan, record["plans"][plan.key]), flush=True)
    write_table(record)


def open_record() -> dict[str, Any]:
    """Return the recorded plans if this code has counted them, by these versions, else none."""
    identity = {
        "counting": hash_counting(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }
    if RECORD.exists():
        record = json.loads(RECORD.read_text())
        if all(record.get(name) == value for name, value in identity.items()):
            return record
    return {**identity, "plans": {}}


def write_record(record: Mapping[str, Any]) -> None:
    """Replace the record of a run, whole or not at all."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    partial = RECORD.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(partial, RECORD)


def compile_plan(
    plan: Plan, quick: bool = False, path: pathlib.Path | None = None
) -> dict[str, Any]:
    """Return the JSON of a plan without its list of exchanges, its date and the seconds it took.

    Args:
      path: of the compiled program; it is written if it is not there. None: it is not kept.
    """
    import jax

    from pretrain.config import load
    from pretrain.plan.compile import CompiledProgram, compile_update
    from pretrain.plan.estimate import plan_run
    from pretrain.plan.topology import make_tpu_machine

    def compile_once(*arguments: Any) -> CompiledProgram:
        if path and (known := read_program(path)):
            return known
        print(f"compiling {plan.key}", flush=True)
        program = compile_update(*arguments)
        if path:
            write_program(path, program)
        return program

    run, machine = load(plan.config, plan.overrides.split()), make_tpu_machine(plan.topology)
    facts = plan_run(run, machine, evaluation=False, quick=quick, compile_step=compile_once)
    facts.pop("collectives", None)  # a plan that does not fit has none
    jax.clear_caches()
    return facts | {"date": datetime.date.today().isoformat()}


def format_row(plan: Plan, facts: Mapping[str, Any]) -> str:
    """Return a line of the table.

    Args:
      facts: the JSON of the plan.
    """
    sizes, mesh = facts["bytes_per_chip"], " x ".join(str(size) for size in facts["mesh"].values())
    peak = (
        f"{sizes['peak'] / GIB:.2f} of {sizes['limit'] / GIB:.1f}"
        if sizes["peak"]
        else "does not fit"
    )
    cells = [
        plan.label,
        f"{plan.topology} ({facts['chips']})",
        mesh,
        peak,
        f"{facts['flops_per_step']:.3g}",
    ]
    if facts["fits"]:
        roof = facts["roofline"]
        parts = " / ".join(
            f"{roof[name] * 1e3:.1f}"
            for name in ("matmul", "vector", "memory", "hidden", "exposed")
        )
        floor = " / ".join(f"{seconds * 1e3:.1f}" for seconds in facts["floor"].values())
        shares = (facts[f"{name}_bound"] for name in ("mfu", "visible_mfu", "hfu"))
        cells += [
            f"{facts['step_seconds_bound'] * 1e3:.1f}",
            parts,
            floor,
            f"{facts['floor_share']:.0%}",
            *(format_share(share) for share in shares),
            f"{facts['days_bound']:.2g}",
        ]
    else:
        cells += [""] * 8
    num_warnings = len(facts["warnings"]) + len(facts.get("gathered_against_the_rules", ()))
    cells += ["; ".join(facts["attention"]["update"]), str(num_warnings)]
    return format_cells(cells)


def format_short_row(plan: Plan, facts: Mapping[str, Any]) -> str:
    """Return a line of the short table: what decides whether to take a slice."""
    sizes, mesh = facts["bytes_per_chip"], facts["mesh"]
    axes = " x ".join(f"{axis} {size}" for axis, size in mesh.items() if size > 1) or "1 chip"
    cells = [plan.label, axes, "does not fit", "", "", ""]
    if sizes["peak"]:
        cells[2] = f"{sizes['peak'] / GIB:.1f} of {sizes['limit'] / GIB:.0f}"
    if facts["fits"]:
        step = facts["step_seconds_bound"] * 1e3
        cells[3:] = f"{step:.1f}", format_share(facts["mfu_bound"]), f"{facts['days_bound']:.2g}"
    return format_cells(cells)


def format_cells(cells: Sequence[str]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def name_slice(topology: str, chips: int) -> str:
    """Return the accelerator type of a slice, such as v4-32 for v4:2x2x4, and its chips."""
    generation = topology.partition(":")[0].replace("v5e", "v5litepod")
    return f"{generation}-{chips * GENERATIONS[generation].count_per_chip}"


def write_table(record: Mapping[str, Any]) -> None:
    """Write the rows of a whole run between the marks of the three pages.

    Raises:
      SystemExit: if a page has no marks.
    """
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    plans = [(plan, record["plans"][plan.key]) for plan in PLANS if plan.key in record["plans"]]
    minutes = sum(facts["seconds_to_compile"] for _, facts in plans) / 60
    days = sorted({facts["date"] for _, facts in plans})
    dates = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    lines = [
        f"`python -m benchmarks.speed.plans`, {dates}: {len(plans)} of {len(PLANS)} plans, "
        f"compiled in {minutes:.0f} minutes on a CPU; {versions}, Python {record['python']}. Each "
        "program is compiled in full, as `train` compiles it.",
        "",
        format_cells(COLUMNS),
        "|---" * len(COLUMNS) + "|",
        *(format_row(plan, facts) for plan, facts in plans),
    ]
    replace_between_marks(PAGE, lines)
    replace_between_marks(SLICES_PAGE, format_short_tables(plans))
    replace_between_marks(EXAMPLES_PAGE, format_examples(plans))


def format_examples(plans: Sequence[tuple[Plan, Mapping[str, Any]]]) -> list[str]:
    """Return the lines of one table with the plans of EXAMPLES, in their order."""
    known = dict(plans)
    lines = [format_cells(EXAMPLE_COLUMNS), "|---" * len(EXAMPLE_COLUMNS) + "|"]
    for plan in EXAMPLES:
        if plan in known:
            name = name_slice(plan.topology, known[plan]["chips"])
            lines.append(f"| {name} (`{plan.topology}`) {format_short_row(plan, known[plan])}")
    return lines


def format_short_tables(plans: Sequence[tuple[Plan, Mapping[str, Any]]]) -> list[str]:
    """Return the lines of a table for each slice, from small to large slices of a generation."""
    slices = {plan.topology: facts["chips"] for plan, facts in plans}
    lines = []
    for topology in sorted(slices, key=lambda name: (name.partition(":")[0], slices[name], name)):
        chips = slices[topology]
        lines += [f"## {name_slice(topology, chips)} (`{topology}`, {chips} chips)", ""]
        lines += [format_cells(SHORT_COLUMNS), "|---" * len(SHORT_COLUMNS) + "|"]
        rows = [format_short_row(*each) for each in plans if each[0].topology == topology]
        lines += [*rows, ""]
    return lines[:-1]


def replace_between_marks(page: pathlib.Path, lines: Sequence[str]) -> None:
    """Replace the lines between the marks of a page.

    Raises:
      SystemExit: if it has no marks.
    """
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{page} has no marks {BEGIN} and {END}")
    inside = "\n".join([BEGIN, "", *lines, "", END])
    page.write_text(
        re.sub(rf"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: inside, text, flags=re.S)
    )


if __name__ == "__main__":
    main()
