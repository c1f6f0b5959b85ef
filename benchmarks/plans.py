"""Make the table of plans of the shipped configurations in docs/pods.md.

    python benchmarks/plans.py [--only bert_large] [--quick]

Each row is one run of `python -m pretrain plan`, compiled by libtpu for a slice on this machine's
CPU, which takes a minute or more. The rows between the two `plans` marks of docs/pods.md are
replaced; with --only, those of one configuration.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "pods.md"
BEGIN, END = "<!-- plans: written by benchmarks/plans.py -->", "<!-- end of plans -->"
GIB = 2**30

# (configuration, slice, overrides): the paper's number of chips if it has one, else a usual size.
PLANS = (
    ("bert_base", "v4:4x4x1", ""),
    ("bert_base", "v4:4x4x4", ""),
    ("bert_large", "v4:4x4x1", ""),
    ("bert_large", "v4:4x4x4", ""),
    ("bert_large", "v4:4x4x4", "mesh.data=1 mesh.fsdp=-1"),
    ("bert_large_512", "v5p:2x2x4", ""),
    ("roberta_base", "v5p:4x4x4", ""),
    ("roberta_large", "v5p:4x4x4", "train.microbatches=4"),
    ("albert_base", "v5p:4x4x4", ""),
    ("albert_large", "v5p:4x4x4", ""),
    ("albert_xlarge", "v5p:4x4x4", ""),
    ("albert_xxlarge", "v5p:4x4x4", ""),
    ("electra_small", "v5e:2x2", ""),
    ("electra_base", "v5e:4x4", ""),
    ("electra_large", "v5p:4x4x4", "model.remat=false"),
    ("distilbert_base", "v5p:2x2x4", "train.microbatches=5"),
    ("t5_small", "v5e:4x4", ""),
    ("t5_base", "v5e:4x4", ""),
    ("t5_base", "v5p:2x2x4", ""),
    ("t5_v1_1_base", "v5e:4x4", ""),
    ("t5_large", "v5p:2x2x4", ""),
    ("t5_3b", "v5p:4x4x4", ""),
    ("t5_11b", "v5p:4x4x8", ""),
    ("bart_base", "v5p:4x4x4", ""),
    ("bart_large", "v5p:4x4x4", "train.microbatches=5"),
    ("transformer_base", "v5e:2x4", ""),
    ("transformer_big", "v5e:2x4", ""),
    ("gpt", "v5e:4x4", ""),
    ("gpt2", "v5p:2x2x4", ""),
    ("gpt2_medium", "v5p:2x2x4", ""),
    ("gpt2_large", "v5p:2x2x4", ""),
    ("gpt2_xl", "v5p:2x2x4", ""),
    ("gpt3_125m", "v5p:2x2x4", ""),
    ("gpt3_350m", "v5p:2x2x4", ""),
    ("gpt3_760m", "v5p:2x2x4", ""),
    ("gpt3_1_3b", "v5p:2x2x4", ""),
    ("gpt3_2_7b", "v5p:4x4x4", ""),
    ("gpt3_6_7b", "v5p:4x4x4", ""),
    ("gpt3_13b", "v5p:4x4x8", ""),
    ("gpt3_175b", "v5p:8x8x8", ""),
)


def format_row(config: str, topology: str, overrides: str, facts: Mapping[str, Any]) -> str:
    """Return a line of the table.

    Args:
      overrides: of the configuration.
      facts: the JSON of the plan.
    """
    sizes, mesh = facts["bytes_per_chip"], " x ".join(str(size) for size in facts["mesh"].values())
    peak = (
        f"{sizes['peak'] / GIB:.2f} of {sizes['limit'] / GIB:.1f}"
        if sizes["peak"]
        else "does not fit"
    )
    cells = [
        format_label(config, overrides),
        f"{topology} ({facts['chips']})",
        mesh,
        peak,
        f"{facts['flops_per_step']:.3g}",
    ]
    if facts["fits"]:
        roof = facts["roofline"]
        parts = " / ".join(
            f"{roof[name] * 1e3:.1f}" for name in ("matmul", "memory", "hidden", "exposed")
        )
        cells += [
            f"{facts['step_seconds_bound'] * 1e3:.1f}",
            parts,
            f"{facts['mfu_bound']:.0%}",
            f"{facts['days_bound']:.2g}",
        ]
    else:
        cells += ["", "", "", ""]
    num_warnings = len(facts["warnings"]) + len(facts.get("gathered_against_the_rules", ()))
    cells += [
        "; ".join(facts["attention"]["update"]),
        str(num_warnings),
        "quickly" if facts["quick"] else "fully",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="one configuration; the other rows are kept")
    parser.add_argument(
        "--quick", action="store_true", help="as `plan --quick`; the row has a remark"
    )
    args = parser.parse_args()
    text = PAGE.read_text()
    section = re.search(rf"{re.escape(BEGIN)}(.*){re.escape(END)}", text, re.S)
    if not section:
        raise SystemExit(f"{PAGE} has no marks {BEGIN} and {END}")
    rows = {}  # start of a line -> the line
    for config, topology, words in PLANS:
        start = f"| {format_label(config, words)} | {topology} ("
        for line in section[1].splitlines():
            if line.startswith(start):
                rows[start] = line
    for config, topology, words in PLANS:
        if args.only and args.only != config:
            continue
        arguments = [
            "plan",
            config,
            "--topology",
            topology,
            *words.split(),
            *(["--quick"] if args.quick else []),
            "--json",
        ]
        print("python -m pretrain", shlex.join(arguments), flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "pretrain", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"the plan ended with status {done.returncode}; its row is unchanged")
        line = format_row(config, topology, words, json.loads(done.stdout))
        print(line, flush=True)
        rows[f"| {format_label(config, words)} | {topology} ("] = line
        write_rows(rows)


def write_rows(rows: Mapping[str, str]) -> None:
    """Write the rows between the marks of the page, in the order of PLANS.

    Args:
      rows: {start of a line: the line}.
    """
    text = PAGE.read_text()
    lines = [
        rows[start]
        for start in (
            f"| {format_label(config, words)} | {topology} (" for config, topology, words in PLANS
        )
        if start in rows
    ]
    head = [
        f"`python benchmarks/plans.py`, last on {datetime.date.today()}; libtpu "
        f"{importlib.metadata.version('libtpu')} on a CPU. Plans that were compiled quickly "
        "(`--quick`) have a worse schedule and worse bounds.",
        "",
        "| configuration | slice (chips) | data x fsdp x sequence x model | GiB a chip at the peak "
        "| FLOPs a step | ms a step, at least | matmul / memory / sent behind matmuls / sent and "
        "waited for | MFU at most | days, at least | attention | gathered against the rules "
        "| compiled |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    inside = "\n".join([BEGIN, "", *head, *lines, "", END])
    PAGE.write_text(
        re.sub(rf"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: inside, text, flags=re.S)
    )


def format_label(config: str, overrides: str) -> str:
    """Return the first cell of a row."""
    return f"`{config}{' ' if overrides else ''}{overrides}`"


if __name__ == "__main__":
    main()
