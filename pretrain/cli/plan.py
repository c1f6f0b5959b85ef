"""plan CONFIG --topology v5p:2x2x4: what a run needs and can reach on TPUs that are not here, read from the program compiled for them."""

import json
import sys

from pretrain.config import load
from pretrain.overrides import ConfigError

GIB = 2**30


def add_arguments(parser):
    parser.add_argument(
        "config", help="a name in configs/, a .py file like those, or a saved config.json"
    )
    parser.add_argument("overrides", nargs="*", metavar="path=value")
    parser.add_argument(
        "--topology", metavar="T", help="a TPU slice: v4:4x4x1, v5e:4x4, v5p:2x2x4, v6e:8x8"
    )
    parser.add_argument(
        "--slices",
        type=int,
        default=1,
        metavar="N",
        help="so many slices, a slower network between them",
    )
    parser.add_argument(
        "--mesh",
        type=int,
        metavar="N",
        help="compile for N fake CPU devices instead, without the TPU's compiler",
    )
    parser.add_argument(
        "--price", type=float, metavar="P", help="of a chip and hour, for the cost of the whole run"
    )
    parser.add_argument(
        "--search",
        action="store_true",
        help="try meshes, micro-batches and remat, and show the best",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compile in a third of the time; bytes and schedule are less exact",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--output", metavar="FILE", help="write the JSON there as well")


def run(args):
    run = load(args.config, args.overrides)
    if bool(args.topology) == bool(args.mesh):
        raise ConfigError(
            "plan takes either --topology T, a TPU slice such as v5p:2x2x4, or --mesh N, fake CPU devices"
        )
    from pretrain.plan import topology as machines

    machines.prepare()
    from pretrain.plan.advice import search, what_would_fit
    from pretrain.plan.estimate import plan

    machine = machines.tpu(args.topology, args.slices) if args.topology else machines.cpu(args.mesh)
    say = (
        (lambda line: print(line, file=sys.stderr, flush=True))
        if args.json
        else (lambda line: print(line, flush=True))
    )
    if args.search:
        facts = {"search": search(run, machine, say, args.quick)}
    else:
        facts = plan(run, machine, price=args.price, quick=args.quick)
    if not args.json:
        print(
            "\n".join(ranking(facts["search"]) if args.search else lines(args.config, run, facts))
        )
    if not args.search and not facts["fits"]:
        say("trying what would fit:")
        facts["tried"] = what_would_fit(run, machine, say, args.quick)
    if args.json:
        print(json.dumps(facts))
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(json.dumps(facts, indent=1) + "\n")
    return 0


def lines(name, run, facts):
    """The plan for a person."""
    mesh = " x ".join(f"{axis} {size}" for axis, size in facts["mesh"].items())
    slices = f"{facts['slices']} slices of " if facts["slices"] > 1 else ""
    yield f"{name} on {slices}{facts['machine']} ({facts['chips']} of {facts['kind']}), {mesh}: compiled in {facts['seconds_to_compile']} s"
    if facts["quick"]:
        yield "compiled quickly: without --quick the schedule is better and the bytes are exact"
    if facts["kind"] == "cpu":
        yield "compiled for the CPU: shardings and exchanges are real, bytes are the CPU compiler's, and there is no roofline"
    yield from memory_lines(facts)
    each = facts["flops_per_step"]
    yield (
        f"FLOPs        {each:.4g} a step ({each / facts['flops_6nd']:.2f} of 6ND), {facts['flops_computed'] / each:.2f} times that are computed"
    )
    for name, kernels in facts["attention"].items():
        if kernels:
            yield f"attention    {'; '.join(kernels)} ({name})"
    if facts["fits"]:
        yield f"moved        {facts['hbm_bytes_per_step'] / GIB:.2f} GiB through HBM, {facts['interconnect_bytes_per_step'] / GIB:.3f} GiB sent, a chip and step"
        yield from exchange_lines(facts["collectives"])
    for path in facts.get("gathered_against_the_rules", ()):
        yield f"WARNING      {path} is split over `model`, and gathered over it all the same"
    for warning in facts["warnings"]:
        yield f"WARNING      gathered whole on every device: {warning}"
    if facts.get("roofline"):
        yield from bound_lines(facts)


def memory_lines(facts):
    sizes = facts["bytes_per_chip"]
    parts = ", ".join(
        f"{name} {sizes[name] / GIB:.2f}"
        for name in ("parameters", "optimizer", "batch", "temporary")
        if sizes[name] is not None
    )
    peak = f"{sizes['peak'] / GIB:.2f}" if sizes["peak"] else "more"
    limit = f" of {sizes['limit'] / GIB:.2f}" if sizes["limit"] else ""
    yield f"{'fits' if facts['fits'] else 'DOES NOT FIT':<13}{peak}{limit} GiB a chip at the peak: {parts}"


def exchange_lines(rows):
    """Exchanges of one kind over the same axes, added up."""
    groups = {}
    for row in rows:
        groups.setdefault(
            (row["kind"], " x ".join(row["axes"]), row["dtype"], row["overlapped"]), []
        ).append(row)
    for (kind, axes, dtype, overlapped), same in sorted(
        groups.items(), key=lambda item: -sum(row["sent_bytes"] for row in item[1])
    ):
        sent, count = sum(row["sent_bytes"] for row in same), sum(row["count"] for row in same)
        hidden = "behind matmuls" if overlapped else "not hidden"
        yield f"  {kind:<27}{axes:<16}{dtype:<6}{count:>6} times {sent / GIB:>9.4f} GiB  {hidden}"


def bound_lines(facts):
    roof = facts["roofline"]
    parts = ", ".join(
        f"{name} {roof[name] * 1e3:.2f}" for name in ("matmul", "memory", "hidden", "exposed")
    )
    yield f"bound        {facts['step_seconds_bound'] * 1e3:.2f} ms a step (ms by {parts}), mostly {roof['by']}"
    cost = f", {facts['cost_bound']:,.0f} at that price" if "cost_bound" in facts else ""
    yield f"at the bound {facts['tokens_per_second_bound']:,.0f} tokens/s, MFU {facts['mfu_bound']:.1%}"
    yield f"             {facts['steps']:,} steps in {facts['days_bound']:.3g} days, {facts['chip_hours_bound']:,.0f} chip hours{cost}"
    yield "             a bound, not a forecast: latencies, vector units and input are left out"


def ranking(found):
    from pretrain.plan.advice import verdict

    if not found:
        yield "nothing that was tried fits"
    for place, one in enumerate(found, 1):
        yield f"{place}. {' '.join(one['words'])}: {verdict(one['plan'])}"
