"""plan CONFIG --topology v5p:2x2x4: memory, time and cost of a run on TPUs, without the TPUs.

All figures are read from the program that the TPU compiler makes.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from data.corpus.json_lines import format_json
from data.corpus.paths import is_remote
from data.store.atomic import write_atomically
from pretrain.api.store_vocabulary import follow_store
from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.config import Run, load
from pretrain.settings.overrides import ConfigError
from pretrain.settings.verb_options import CONFIG_HELP

GIB = 2**30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `plan` to a parser."""
    parser.add_argument("config", help=CONFIG_HELP)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="changed fields, e.g. data.batch_size=256 model.remat=true",
    )
    parser.add_argument(
        "--topology",
        metavar="T",
        help="TPU slice to compile for, e.g. v4:2x2x4, v5e:4x4, v5p:2x2x4 or v6e:8x8",
    )
    parser.add_argument(
        "--slices",
        type=int,
        default=1,
        metavar="N",
        help="number of such slices, connected by the slower data centre network "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--mesh",
        type=int,
        metavar="N",
        help="compile for N simulated CPU devices instead, without the TPU compiler",
    )
    parser.add_argument(
        "--price", type=float, metavar="P", help="price per chip hour, to report the run's cost"
    )
    parser.add_argument(
        "--search",
        action="store_true",
        help="try meshes, microbatches and rematerialization, and rank the results; takes about "
        "half an hour",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compile in a third of the time, with a less exact memory use and schedule",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--output", metavar="FILE", help="also write the JSON object to FILE")
    add_overwrite(parser, "FILE")


def run(args: argparse.Namespace) -> int:
    """Compile the run for the machine and print the plan; return 0."""
    if args.output and not os.path.isdir(args.output):
        check_output_file(args.output, args.overwrite, [args.config])
    run = follow_store(load(args.config, args.overrides), args.config, args.overrides)
    if bool(args.topology) == bool(args.mesh):
        raise ConfigError(
            "plan needs either --topology T, a TPU slice such as v5p:2x2x4, or --mesh N, a number "
            "of simulated CPU devices"
        )
    check_flags(args)
    from pretrain.phases import resolve_phases

    is_phased = resolve_phases(run)[0].run is not run
    if is_phased and args.search:
        raise ConfigError(
            "--search ranks plans of constant settings: leave phases and ramps out (phases=(), "
            "data.batch_ramp=BatchRamp), and give a phase's settings"
        )
    from pretrain.plan import topology as machines

    machines.configure_environment()
    from pretrain.plan.advice import search_variants, try_remedies
    from pretrain.plan.estimate import plan_phases, plan_run

    machine = (
        machines.make_tpu_machine(args.topology, args.slices)
        if args.topology
        else machines.make_cpu_machine(args.mesh)
    )

    def print_progress(line: str) -> None:
        print(line, file=sys.stderr if args.json else sys.stdout, flush=True)

    if args.search:
        facts = {"search": search_variants(run, machine, print_progress, args.quick)}
    else:
        make_plan = plan_phases if is_phased else plan_run
        facts = make_plan(run, machine, price=args.price, quick=args.quick)
    if not args.json:
        print("\n".join(format_facts(args.config, run, facts)))
    if not args.search and not facts["fits"]:
        print_progress("trying configurations that may fit:")
        unfit = find_unfit(run, facts)
        facts["tried"] = try_remedies(unfit, machine, print_progress, args.quick)
    if args.json:
        print(format_json(facts))
    if args.output:
        write_atomically(args.output, format_json(facts, indent=1) + "\n")
    return 0


def find_unfit(run: Run, facts: Mapping[str, Any]) -> Run:
    """Return the settings of the first phase that does not fit; the run without phases."""
    from pretrain.phases import resolve_phases

    fits = [phase["fits"] for phase in facts.get("phases", ())] or [False]
    return resolve_phases(run)[fits.index(False)].run


def format_facts(name: str, run: Run, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a search, of a plan, or of the plans of phases."""
    if "search" in facts:
        yield from format_ranking(facts["search"])
    elif "phases" not in facts:
        yield from format_plan(name, run, facts)
    else:
        for phase in facts["phases"]:
            words = [phase["name"] and f"phase {phase['name']}", *phase["changes"]]
            yield from format_plan(", ".join([name, *filter(None, words), ""]).strip(), run, phase)
        if "days_bound" in facts:
            cost = f", cost {facts['cost_bound']:,.0f}" if "cost_bound" in facts else ""
            yield (
                f"all phases   {facts['steps']:,} steps in {facts['days_bound']:.3g} days, "
                f"{facts['chip_hours_bound']:,.0f} chip hours{cost}"
            )


def check_flags(args: argparse.Namespace) -> None:
    """Raise ConfigError for flags that are out of range or have no effect, before compiling."""
    for name in ("slices", "mesh"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value}: must be at least 1")
    if args.mesh and args.slices > 1:
        raise ConfigError(f"--slices {args.slices} needs --topology T; --mesh has no slices")
    if args.price is not None and not 0 <= args.price < math.inf:
        raise ConfigError(f"--price {args.price}: must be a number from 0 on")
    if args.search and args.price is not None:
        raise ConfigError(
            "--price has no effect with --search; give it to a plan of the configuration you choose"
        )
    if args.price is not None and args.mesh:
        raise ConfigError("--price has no effect with --mesh, which has no time of a step")
    if args.output and not is_remote(args.output):
        folder = os.path.dirname(os.path.abspath(args.output))
        if not os.path.isdir(folder) or os.path.isdir(args.output):
            raise ConfigError(f"--output {args.output}: must be a file in a folder that exists")


def format_plan(name: str, run: Run, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a plan's report."""
    mesh = " x ".join(f"{axis} {size}" for axis, size in facts["mesh"].items())
    slices = f"{facts['slices']} slices of " if facts["slices"] > 1 else ""
    yield (
        f"{name} on {slices}{facts['machine']} ({facts['chips']} of {facts['kind']}), {mesh}: "
        f"compiled in {facts['seconds_to_compile']} s"
    )
    if facts["quick"]:
        yield "compiled quickly: without --quick the schedule is better and the bytes are exact"
    if facts["kind"] == "cpu":
        yield (
            "compiled for the CPU: shardings and collectives are the run's, bytes are the CPU "
            "compiler's, and there is no roofline"
        )
    yield from format_memory(facts)
    flops, visible = facts["flops_per_step"], facts["visible_flops_per_step"]
    yield (
        f"FLOPs        {flops:.4g} per step ({flops / facts['flops_6nd']:.2f} of 6ND); computed, "
        f"with rematerialization: {facts['flops_computed'] / flops:.2f} times as many"
    )
    if visible != flops:
        yield (
            f"             {visible:.4g} without the pairs that causal masks and windows hide; the "
            "papers count whole squares"
        )
    for path, kernels in facts["attention"].items():
        if kernels:
            yield f"attention    {'; '.join(kernels)} ({path})"
    for line in facts["exchange"]:
        yield f"exchange     {line}"
    if facts["fits"]:
        yield (
            f"traffic      {facts['hbm_bytes_per_step'] / GIB:.2f} GiB of HBM, "
            f"{facts['interconnect_bytes_per_step'] / GIB:.3f} GiB sent, per chip and step"
        )
        yield from format_exchanges(facts["collectives"])
        if sent := facts["muon_bytes_per_step"]:
            yield (
                f"muon         sends {sent / GIB:.4f} GiB of these, because it orthogonalizes "
                "whole matrices; AdamW would not"
            )
    for path in facts.get("gathered_against_the_rules", ()):
        yield f"WARNING      {path} is sharded over `model` but gathered over it"
    for warning in facts["warnings"]:
        yield f"WARNING      gathered in full on every device: {warning}"
    if facts.get("roofline"):
        yield from format_bound(facts)


def format_memory(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the line about memory."""
    sizes = facts["bytes_per_chip"]
    terms = ", ".join(
        f"{name} {sizes[name] / GIB:.2f}"
        for name in ("parameters", "optimizer", "batch", "temporary")
        if sizes[name] is not None
    )
    peak = f"{sizes['peak'] / GIB:.2f}" if sizes["peak"] else "more"
    limit = f" of {sizes['limit'] / GIB:.2f}" if sizes["limit"] else ""
    status = "fits" if facts["fits"] else "DOES NOT FIT"
    yield f"{status:<13}{peak}{limit} GiB per chip at the peak: {terms}"


def format_exchanges(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line per kind of collective, mesh axes and dtype, with the total bytes sent."""
    groups: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in rows:
        key = (row["kind"], " x ".join(row["axes"]), row["dtype"], row["overlapped"])
        groups.setdefault(key, []).append(row)
    for (kind, axes, dtype, overlapped), same in sorted(
        groups.items(), key=lambda item: -sum(row["sent_bytes"] for row in item[1])
    ):
        sent, count = sum(row["sent_bytes"] for row in same), sum(row["count"] for row in same)
        overlap = "overlapped" if overlapped else "exposed"
        yield f"  {kind:<27}{axes:<16}{dtype:<6}{count:>6} times {sent / GIB:>9.4f} GiB  {overlap}"


def format_bound(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about the lower bound of the step time."""
    from pretrain.plan.roofline import format_share

    roof = facts["roofline"]
    terms = ", ".join(
        f"{name} {roof[name] * 1e3:.2f}"
        for name in ("matmul", "vector", "memory", "hidden", "exposed")
    )
    yield (
        f"bound        {facts['step_seconds_bound'] * 1e3:.2f} ms per step (ms by {terms}), "
        f"mostly {roof['by']}"
    )
    floor = facts["floor"]
    terms = ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in floor.items())
    yield (
        f"floor        {max(floor.values()) * 1e3:.2f} ms per step (ms by {terms}), "
        f"{facts['floor_share']:.1%} of the bound"
    )
    cost = f", cost {facts['cost_bound']:,.0f}" if "cost_bound" in facts else ""
    visible = (
        f" ({facts['visible_mfu_bound']:.1%} without masked pairs)"
        if facts["visible_flops_per_step"] != facts["flops_per_step"]
        else ""
    )
    yield (
        f"at the bound {facts['tokens_per_second_bound']:,.0f} {facts['unit']}/s, "
        f"MFU {format_share(facts['mfu_bound'], 1)}{visible}, HFU {facts['hfu_bound']:.1%}"
    )
    yield (
        f"             {facts['steps']:,} steps in {facts['days_bound']:.3g} days, "
        f"{facts['chip_hours_bound']:,.0f} chip hours{cost}"
    )
    yield "             a bound, not a forecast: it ignores latencies and input"


def format_ranking(ranking: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a search, best configuration first."""
    from pretrain.plan.advice import summarize_plan

    if not ranking:
        yield "no configuration that was tried fits"
    for place, candidate in enumerate(ranking, 1):
        yield f"{place}. {' '.join(candidate['words'])}: {summarize_plan(candidate['plan'])}"
