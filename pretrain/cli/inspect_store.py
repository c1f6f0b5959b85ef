"""inspect STORE: show what a token store holds, before you train on it."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data.corpus.json_lines import format_json
from data.corpus.paths import as_path, is_remote
from data.source import MANIFEST_FILE
from pretrain.cli.output_file import check_output_file
from pretrain.host.extras import how_to_install

if TYPE_CHECKING:
    from rich.console import Console

DOCUMENTS = 1000  # in the sample
SHOWN_VALUES = 10  # of a field
OF_A_CONFIG = {"step": 0, "rows": 4, "batches": 8}  # options of `inspect CONFIG` and their defaults


def is_store(place: str) -> bool:
    """Return whether a place is the folder of a token store, not the name of a configuration."""
    if is_remote(place):
        return not place.endswith((".py", ".json"))
    return (as_path(place) / MANIFEST_FILE).is_file()


def inspect_store(args: argparse.Namespace) -> int:
    """Print the report of `inspect STORE`, draw its picture if one is asked for, and return 0.

    Raises:
      ValueError: the store has no texts, an option belongs to a configuration, or matplotlib is
        not installed.
      FileExistsError: there is a picture already.
    """
    from data.inspection.store_report import describe_store, read_lengths
    from data.store.kinds import open_source
    from pretrain.host.terminal import print_notice
    from pretrain.reporting.store_picture import draw_store

    given = [f"--{name}" for name, default in OF_A_CONFIG.items() if vars(args)[name] != default]
    if words := [*given, *args.overrides]:
        raise ValueError(
            f"{args.config} is a store, and {words[0]} is for a configuration: `inspect CONFIG "
            f"{words[0]} data.store={args.config}`, or leave it out"
        )
    if args.picture and not importlib.util.find_spec("matplotlib"):
        raise ValueError(f"--picture needs matplotlib: {how_to_install('report')}")
    path = args.picture and check_output_file(args.picture, args.overwrite, option="--picture")
    store = open_source(args.config)
    report = describe_store(store, args.split, args.documents)
    if path:
        missing = draw_store(report, read_lengths(store.open_split(args.split)), path)
        if missing:
            print_notice(missing)
    if args.json:
        print(format_json(report))
    else:
        print_store(report)
        if path:
            print(f"wrote {path}")
    return 0


def print_store(report: Mapping[str, Any]) -> None:
    """Print the report of a store."""
    from rich.table import Table
    from rich.text import Text

    from pretrain.host.console import make_console
    from pretrain.host.terminal import escape_line, escape_strings

    console, report = make_console(), escape_strings(report)
    vocabulary, lengths, sample = report["vocabulary"], report["lengths"], report["sample"]
    console.print(
        Text(report["store"], style="bold").append(
            f", {report['split']} split: {report['documents']:,} documents, "
            f"{report['tokens']:,} tokens of {vocabulary['size']:,} ids ({vocabulary['kind']})"
        ),
        soft_wrap=True,
    )
    table = Table(
        *("source", "documents", "tokens", "share"),
        *("tokens\nper word", "bytes\nper token", "unknown"),
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for row in report["sources"]:
        measures = (row["tokens_per_word"], row["bytes_per_token"], row["unknown_share"])
        shown = ("{:.2f}", "{:.2f}", "{:.4%}")
        table.add_row(
            *(row["name"], f"{row['documents']:,}", f"{row['tokens']:,}"),
            f"{row['share']:.1%}",
            *("" if one is None else form.format(one) for form, one in zip(shown, measures)),
        )
    console.print(table)
    for field, rows in report["values"].items():
        _print_values(console, field, rows)
    quantiles = "  ".join(f"{name} {value:,}" for name, value in lengths["quantiles"].items())
    console.print(
        f"tokens of a document: mean {lengths['mean']:,.1f}  {quantiles}  "
        f"(of {lengths['documents']:,} documents)",
        soft_wrap=True,
    )
    console.print(
        f"sample: {sample['documents']:,} of {report['documents']:,} documents at even distances, "
        f"the first {sample['tokens_of_each']:,} tokens of each",
        soft_wrap=True,
    )
    for key, title in (
        ("sentences", "sentences that occur more than once in the sample"),
        ("phrases", "phrases of 8 words or more that occur more than once in the sample"),
    ):
        if not report[key]:
            console.print(f"no {title}", soft_wrap=True)
            continue
        table = Table("times", "text")
        for row in report[key]:
            table.add_row(f"{row['count']:,}", escape_line(row["text"]))
        console.print(title, soft_wrap=True)
        console.print(table)


def _print_values(console: Console, field: str, rows: Sequence[Mapping[str, Any]] | None) -> None:
    """Print the most frequent values of a field; None: it has too many to count."""
    from rich.table import Table

    from data.prepare.field_values import MAX_VALUES
    from pretrain.host.terminal import escape_line

    if rows is None:
        console.print(f"{escape_line(field)}: more than {MAX_VALUES:,} values", soft_wrap=True)
        return
    table = Table(f"value of {escape_line(field)}", "documents", "share of bytes")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows[:SHOWN_VALUES]:
        value = "(none)" if row["value"] is None else escape_line(row["value"])
        table.add_row(value, f"{row['documents']:,}", f"{row['share']:.1%}")
    if len(rows) > SHOWN_VALUES:
        rest = rows[SHOWN_VALUES:]
        table.add_row(
            f"({len(rest):,} others)",
            f"{sum(row['documents'] for row in rest):,}",
            f"{sum(row['share'] for row in rest):.1%}",
        )
    console.print(table)
