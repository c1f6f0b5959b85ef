"""inspect CONFIG: show one batch as the model receives it, decoded, and check its properties.

The objective defines the checks, e.g. the share of masked tokens. Special ids and sentinels
are compared with the tokenizer that `export` would write. `inspect STORE` shows what a token store
holds (pretrain/cli/inspect_store.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data.corpus.json_lines import format_json
from pretrain.cli import inspect_store
from pretrain.cli.output_file import add_overwrite
from pretrain.settings.verb_options import CONFIG_HELP

if TYPE_CHECKING:
    from rich.text import Text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `inspect` to a parser."""
    parser.add_argument(
        "config",
        metavar="CONFIG|STORE",
        help=f"{CONFIG_HELP}; or the folder of a token store, of which it shows sources, lengths, "
        "how the vocabulary serves each source, and repeated texts",
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="path=value", help="changed fields, e.g. data.store=STORE"
    )
    parser.add_argument(
        "--step",
        type=int,
        default=0,
        help="step whose batch is shown, in the phase that trains it, and the first one that is "
        "checked (default: %(default)s)",
    )
    parser.add_argument(
        "--rows", type=int, default=4, help="number of rows to show (default: %(default)s)"
    )
    parser.add_argument(
        "--batches", type=int, default=8, help="number of batches to check (default: %(default)s)"
    )
    parser.add_argument(
        "--split",
        default="train",
        choices=("train", "heldout"),
        help="split of the store (default: %(default)s)",
    )
    of_store = parser.add_argument_group("of a store")
    of_store.add_argument(
        "--documents",
        type=int,
        default=inspect_store.DOCUMENTS,
        metavar="N",
        help="documents in the sample in which repeated texts are counted (default: %(default)s)",
    )
    of_store.add_argument(
        "--picture",
        metavar="FILE.png",
        help="draw the lengths of documents and the shares of sources",
    )
    add_overwrite(of_store, "an existing picture")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print a report; return 0 if all checks pass, else 1."""
    if inspect_store.is_store(args.config):
        return inspect_store.inspect_store(args)
    from data.inspection.batch_report import inspect_batches
    from data.store.kinds import open_source
    from pretrain.config import load
    from pretrain.convert import find_model_type
    from pretrain.convert.tokenizer import build_tokenizer
    from pretrain.phases import find_phase, open_streams, resolve_phases

    if args.batches < 1 or args.rows < 0:
        raise ValueError(
            f"--batches {args.batches} --rows {args.rows}: expected at least 1 batch and 0 rows"
        )
    settings = load(args.config, args.overrides)
    if not settings.data.store:
        raise ValueError(
            f"{args.config} names no token store; add data.store=FOLDER, the output of `prepare`"
        )
    store = open_source(settings.data.store)
    phases = resolve_phases(settings)
    phase = find_phase(phases, args.step)
    begun = phases[: phases.index(phase) + 1]  # Its first row follows from the phases before it.
    stream = open_streams(store, begun, args.split)[-1]
    exported = build_tokenizer(store.vocabulary, find_model_type(settings.model))
    where = {"store": str(store.path), "split": args.split}
    where |= {"phase": phase.name} if phase.name else {}
    reports = {
        part: where
        | inspect_batches(each, args.step, args.batches, args.rows, exported.token_to_id)
        for part, each in stream.streams.items()
    }
    passed = all(report["passed"] for report in reports.values())
    if args.json:
        mixed = where | {"passed": passed, "parts": reports}
        print(format_json(reports.get("", mixed)))
    else:
        for part, report in reports.items():
            print_report(report, part)
    return 0 if passed else 1


def print_report(report: Mapping[str, Any], part: str = "") -> None:
    """Print a report.

    Args:
      part: name of the part of a mixed objective, or "".
    """
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from pretrain.host.console import make_console
    from pretrain.host.terminal import escape_strings

    console, report = make_console(), escape_strings(report)
    phase = f", phase {report['phase']}" if "phase" in report else ""
    where = f"{phase}, step {report['step']:,}, {report['split']} split of {report['store']}"
    console.print(
        Text(f"{part}: " if part else "").append(report["objective"], style="bold").append(where)
    )
    for row in report["rows"]:
        console.print(
            Panel(format_row(row), title=f"row {row['row']:,} of the split", title_align="left")
        )
    table = Table(
        "check",
        "observed",
        "expected",
        "",
        title=f"over {report['batches']} batches",
        title_justify="left",
    )
    for check in report["checks"]:
        status = Text("passed", "green") if check["passed"] else Text("FAILED", "bold red")
        table.add_row(check["name"], check["seen"], check["expected"], status)
    console.print(table)
    failed = sum(not check["passed"] for check in report["checks"])
    if failed:
        console.print(f"{failed} failed", style="bold red")
    else:
        console.print("all checks passed", style="green")


STYLES = {"as [MASK]": "bold green", "by another word": "bold yellow", "as itself": "bold blue"}
STYLES["in order"] = "bold blue"  # of permutation_lm


def format_row(row: Mapping[str, Any]) -> Text:
    """Return a row as styled text: masked tokens in colour and listed, segments and sentinels."""
    from rich.text import Text

    text = Text()
    if "inputs" in row:
        for name in ("inputs", "targets"):
            text.append(f"{name:<8}", style="dim")
            for token in row[name]:
                text.append(token, style="bold magenta" if token.startswith(" <") else "")
            text.append("\n")
        return text[:-1]
    if "next" in row:
        return text.append("".join(row["tokens"])).append(row["next"], style="bold green")
    masked = {mask["position"]: mask for mask in row.get("masked", ())}
    for i, token in enumerate(row["tokens"]):
        style = "cyan" if "segments" in row and row["segments"][i] else ""
        text.append(token, style=STYLES[masked[i]["how"]] if i in masked else style)
    text.append(f"\n+ {row['padding']} of padding" if row["padding"] else "", style="dim")
    if "label" in row:
        text.append("\nlabel   ", style="dim").append(row["label"], style="cyan")
    if "masked" not in row:
        return text
    text.append("\npredict ", style="dim")
    for mask in row["masked"]:
        text.append(f" {mask['position']}:").append(mask["target"], style=STYLES[mask["how"]])
        if mask["how"] == "in order":
            text.append(f" (rank {mask['rank']})", style="dim")
        elif mask["how"] != "as [MASK]":
            shown = f", {mask['shown']}" if mask["shown"] != mask["target"] else ""
            text.append(f" (shown {mask['how']}{shown})", style="dim")
    return text
