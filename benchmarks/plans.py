"""The plans of the shipped configurations, as docs/pods.md shows them.

    python benchmarks/plans.py [--only bert_large] [--quick]

Each is one run of `python -m pretrain plan`, compiled by libtpu for the slice that is named, on this machine's CPU: a minute or more each.
The rows between the two `plans` marks of docs/pods.md are replaced; with --only, those of one configuration.
"""

import argparse
import datetime
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "pods.md"
BEGIN, END = "<!-- plans: written by benchmarks/plans.py -->", "<!-- end of plans -->"
GIB = 2**30

# (configuration, slice, words): the paper's number of chips where it tells one; sizes of today for the others.
PLANS = (
    ("bert_base", "v4:4x4x1", "mesh.data=-1"),
    ("bert_large", "v4:4x4x4", ""),
    ("bert_large_512", "v4:4x4x4", ""),
    ("bert_large_512", "v5p:2x2x4", "mesh.data=-1 mesh.fsdp=1 model.remat=false"),
    ("t5_base", "v5e:4x4", ""),
    ("t5_v1_1_base", "v5e:4x4", ""),
    ("t5_large", "v5p:2x2x4", ""),
    ("t5_3b", "v5p:4x4x4", ""),
    ("t5_11b", "v5p:4x4x8", ""),
)


def command(config, topology, words, quick):
    return ["plan", config, "--topology", topology, *words.split(), *(["--quick"] if quick else []), "--json"]


def row(config, topology, words, facts):
    """A line of the table."""
    sizes, mesh = facts["bytes_per_chip"], " x ".join(str(size) for size in facts["mesh"].values())
    peak = f"{sizes['peak'] / GIB:.2f} of {sizes['limit'] / GIB:.1f}" if sizes["peak"] else "does not fit"
    cells = [f"`{config}{' ' if words else ''}{words}`", f"{topology} ({facts['chips']})", mesh, peak, f"{facts['flops_per_step']:.3g}"]
    if facts["fits"]:
        roof = facts["roofline"]
        parts = " / ".join(f"{roof[name] * 1e3:.1f}" for name in ("matmul", "memory", "hidden", "exposed"))
        cells += [f"{facts['step_seconds_bound'] * 1e3:.1f}", parts, f"{facts['mfu_bound']:.0%}", f"{facts['days_bound']:.2g}"]
    else:
        cells += ["", "", "", ""]
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="the plans of one configuration")
    parser.add_argument("--quick", action="store_true", help="as `plan --quick`; says so in the page")
    args = parser.parse_args()
    text = PAGE.read_text()
    kept = re.search(rf"{re.escape(BEGIN)}(.*){re.escape(END)}", text, re.S)
    if not kept:
        raise SystemExit(f"{PAGE}: the marks {BEGIN} and {END} are not there")
    old = {key: line for line in kept[1].splitlines() if (key := tuple(cell.strip() for cell in line.split("|")[1:3])) and line.startswith("| `")}
    lines = []
    for config, topology, words in PLANS:
        key = (f"`{config}{' ' if words else ''}{words}`", None)
        before = next((line for (first, second), line in old.items() if first == key[0] and second.startswith(topology)), None)
        if args.only and args.only != config:
            lines += [before] if before else []
            continue
        words_of = command(config, topology, words, args.quick)
        print("python -m pretrain", shlex.join(words_of), flush=True)
        done = subprocess.run([sys.executable, "-m", "pretrain", *words_of], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        lines.append(row(config, topology, words, json.loads(done.stdout)))
        print(lines[-1], flush=True)
    head = [
        f"`python benchmarks/plans.py{' --quick' if args.quick else ''}`, last on {datetime.date.today()}; libtpu 0.0.42 on a CPU.",
        "",
        "| configuration | slice (chips) | data x fsdp x model | GiB a chip at the peak | FLOPs a step | ms a step, at least | "
        "matmul / memory / sent behind matmuls / sent and waited for | MFU at most | days, at least |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    PAGE.write_text(text.replace(kept[0], "\n".join([BEGIN, "", *head, *lines, "", END])))


if __name__ == "__main__":
    main()
