"""Make the table of plans of the shipped configurations in docs/pods.md.

    python -m benchmarks.plans          compile what the recorded run lacks; then write the page
    python -m benchmarks.plans --only bert_large --quick    print rows, record nothing

Each row is what `python -m pretrain plan` reports of the training step, compiled by libtpu for a
slice on this machine's CPU, which takes minutes. benchmarks/results/plans/run.json records each
plan as it ends, with a hash of the program that was compiled. A run keeps a recorded plan if the
program, the versions and the code that counts are still the same, and compiles the others. The page
is written when all plans are there, so each of its rows is that of the present program.
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
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks.plan_hashes import hash_counting, hash_program
from pretrain.plan.roofline import format_share

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "pods.md"
RECORD = ROOT / "benchmarks" / "results" / "plans" / "run.json"
BEGIN, END = "<!-- plans: written by benchmarks/plans.py -->", "<!-- end of plans -->"
PACKAGES = ("jax", "jaxlib", "libtpu", "flax", "optax")
GIB = 2**30


class Plan(NamedTuple):
    """One row of the table.

    Attributes:
      config: name of a configuration.
      topology: TPU slice: the paper's number of chips if it has one, else a usual size.
      overrides: `path=value` arguments, separated by spaces.
    """

    config: str
    topology: str
    overrides: str = ""

    @property
    def label(self) -> str:
        """Return the first cell of the row."""
        return f"`{self.config}{' ' if self.overrides else ''}{self.overrides}`"

    @property
    def key(self) -> str:
        """Return the arguments of `plan`, by which the plan is recorded."""
        return " ".join([self.config, "--topology", self.topology, *self.overrides.split()])


LONG_ROWS = (
    "model.length=8192 data.objective.length=8192 data.objective.max_predictions=1229 "
    "data.batch_size=16"
)
ROWS_8192 = "data.objective.length=8192 data.batch_size=16"
XLNET_8192 = "model.length=8192 data.objective.length=8192 data.batch_size=16"
BYTES_8192 = "model.length=8192 data.objective.length=8192"
PLANS = (
    Plan("bert_base", "v4:4x4x1"),
    Plan("bert_base", "v4:4x4x4"),
    Plan("bert_large", "v4:4x4x1"),
    Plan("bert_large", "v4:4x4x4"),
    Plan("bert_large", "v4:4x4x4", "mesh.data=1 mesh.fsdp=-1"),
    Plan("bert_large_512", "v5p:2x2x4"),
    Plan("roberta_base", "v5p:4x4x4"),
    Plan("roberta_large", "v5p:4x4x4", "train.microbatches=4"),
    Plan("albert_base", "v5p:4x4x4"),
    Plan("albert_large", "v5p:4x4x4"),
    Plan("albert_xlarge", "v5p:4x4x4"),
    Plan("albert_xxlarge", "v5p:4x4x4"),
    Plan("electra_small", "v5e:2x2"),
    Plan("electra_base", "v5e:4x4"),
    Plan("electra_large", "v5p:4x4x4", "model.remat=false"),
    Plan("distilbert_base", "v5p:2x2x4", "train.microbatches=5"),
    Plan("t5_small", "v5e:4x4"),
    Plan("t5_base", "v5e:4x4"),
    Plan("t5_base", "v5p:2x2x4"),
    Plan("t5_v1_1_base", "v5e:4x4"),
    Plan("t5_large", "v5p:2x2x4"),
    Plan("t5_3b", "v5p:4x4x4"),
    Plan("t5_11b", "v5p:4x4x8"),
    Plan("bart_base", "v5p:4x4x4"),
    Plan("bart_large", "v5p:4x4x4", "train.microbatches=5"),
    Plan("transformer_base", "v5e:2x4"),
    Plan("transformer_big", "v5e:2x4"),
    Plan("gpt", "v5e:4x4"),
    Plan("gpt2", "v5p:2x2x4"),
    Plan("grover_base", "v5p:2x2x4"),
    Plan("gpt2_medium", "v5p:2x2x4"),
    Plan("gpt2_large", "v5p:2x2x4"),
    Plan("gpt2_xl", "v5p:2x2x4"),
    Plan("gpt3_125m", "v5p:2x2x4"),
    Plan("gpt3_350m", "v5p:2x2x4"),
    Plan("gpt3_760m", "v5p:2x2x4"),
    Plan("gpt3_1_3b", "v5p:2x2x4"),
    Plan("gpt3_2_7b", "v5p:4x4x4"),
    Plan("gpt3_6_7b", "v5p:4x4x4"),
    Plan("gpt3_13b", "v5p:4x4x8"),
    Plan("gpt3_175b", "v5p:8x8x8"),
    Plan("linformer_base", "v5e:4x4"),
    Plan("linformer_base", "v5e:4x4", LONG_ROWS),
    Plan("linformer_base", "v5p:2x2x4", LONG_ROWS),
    Plan("transformer_xl_base", "v5e:4x4"),
    Plan("transformer_xl_base", "v5e:4x4", ROWS_8192),
    Plan("transformer_xl_base", "v5p:2x2x4", ROWS_8192),
    Plan("transformer_xl_large", "v5p:2x2x4", "model.attention_dropout=0"),
    Plan("xlnet_base", "v5e:4x4"),
    Plan("xlnet_base", "v5e:4x4", XLNET_8192),
    Plan("xlnet_base", "v5p:2x2x4", XLNET_8192),
    Plan("xlnet_large", "v5p:4x4x4", "train.microbatches=8"),
    Plan("sparse_transformer_enwik8", "v5e:4x4"),
    Plan("sparse_transformer_enwik8", "v5e:4x4", BYTES_8192),
    Plan("sparse_transformer_enwik8", "v5p:2x2x4", BYTES_8192),
    Plan("music_transformer", "v5e:2x2"),
    Plan("music_transformer", "v5e:4x4", ROWS_8192),
    Plan("music_transformer", "v5p:2x2x4", ROWS_8192),
    Plan("reformer_enwik8", "v5p:2x2x2"),
    Plan("reformer_enwik8", "v5e:4x4", ROWS_8192),
    Plan("reformer_enwik8", "v5p:2x2x4", ROWS_8192),
    Plan("lstm_lm", "v5e:2x2"),
    Plan("elmo", "v5e:2x4"),
    Plan("elmo_small", "v5e:2x4"),
    Plan("vit_tiny", "v5e:4x4"),
    Plan("vit_small", "v5e:4x4"),
    *(Plan(f"vit_{size}", on) for size in ("base", "large") for on in ("v5e:8x8", "v5p:4x4x4")),
    *(Plan(f"deit_{size}_distilled", "v5e:4x4") for size in ("tiny", "small", "base")),
)

COLUMNS = (
    "configuration",
    "slice (chips)",
    "data x fsdp x sequence x model",
    "GiB a chip at the peak",
    "FLOPs a step",
    "ms a step, at least",
    "matmul / memory / sent behind matmuls / sent and waited for",
    "MFU at most",
    "without masked pairs",
    "HFU at most",
    "days, at least",
    "attention",
    "gathered against the rules",
)


def main() -> None:
    """Compile the plans that the record lacks and write the page, or print some rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="print the rows of one configuration and record nothing")
    parser.add_argument("--quick", action="store_true", help="with --only: as `plan --quick`")
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
        if record["plans"].get(plan.key, {}).get("program") != program:
            record["plans"][plan.key] = compile_plan(plan) | {"program": program}
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
    """Write the record of a run in place of the old one, whole or not at all."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    partial = RECORD.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(partial, RECORD)


def compile_plan(plan: Plan, quick: bool = False) -> dict[str, Any]:
    """Return the JSON of a plan without its list of exchanges, its date and the seconds it took."""
    import jax

    from pretrain.config import load
    from pretrain.plan.estimate import plan_run
    from pretrain.plan.topology import make_tpu_machine

    print(f"compiling {plan.key}", flush=True)
    start = time.monotonic()
    run, machine = load(plan.config, plan.overrides.split()), make_tpu_machine(plan.topology)
    facts = plan_run(run, machine, evaluation=False, quick=quick)
    facts.pop("collectives", None)  # a plan that does not fit has none
    jax.clear_caches()
    return facts | {
        "seconds": round(time.monotonic() - start, 1),
        "date": datetime.date.today().isoformat(),
    }


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
            f"{roof[name] * 1e3:.1f}" for name in ("matmul", "memory", "hidden", "exposed")
        )
        shares = (facts[f"{name}_bound"] for name in ("mfu", "visible_mfu", "hfu"))
        cells += [
            f"{facts['step_seconds_bound'] * 1e3:.1f}",
            parts,
            *(format_share(share) for share in shares),
            f"{facts['days_bound']:.2g}",
        ]
    else:
        cells += [""] * 6
    num_warnings = len(facts["warnings"]) + len(facts.get("gathered_against_the_rules", ()))
    cells += ["; ".join(facts["attention"]["update"]), str(num_warnings)]
    return f"| {' | '.join(cells)} |"


def write_table(record: Mapping[str, Any]) -> None:
    """Write the rows of a whole run between the marks of the page.

    Raises:
      SystemExit: if the page has no marks.
    """
    text = PAGE.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{PAGE} has no marks {BEGIN} and {END}")
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    plans = [record["plans"][plan.key] for plan in PLANS]
    minutes = sum(facts["seconds"] for facts in plans) / 60
    days = sorted({facts["date"] for facts in plans})
    dates = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    lines = [
        f"`python -m benchmarks.plans`, {dates}: {len(PLANS)} plans, compiled in {minutes:.0f} "
        f"minutes on a CPU; {versions}, Python {record['python']}. Each program is compiled in "
        "full, as `train` compiles it.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
        *(format_row(plan, record["plans"][plan.key]) for plan in PLANS),
    ]
    inside = "\n".join([BEGIN, "", *lines, "", END])
    PAGE.write_text(
        re.sub(rf"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: inside, text, flags=re.S)
    )


if __name__ == "__main__":
    main()
