"""inspect CONFIG: show one batch as the model gets it, decoded, and check what its objective promises.

Special ids and sentinels are compared with the tokenizer that `export` would write beside the model.
"""

import json


def add_arguments(parser):
    parser.add_argument("config", help="name or path of a configuration")
    parser.add_argument(
        "overrides", nargs="*", metavar="path=value", help="for example data.store=STORE"
    )
    parser.add_argument(
        "--step", type=int, default=0, help="the step that is shown, and the first that is checked"
    )
    parser.add_argument("--rows", type=int, default=4, help="rows to show (default 4)")
    parser.add_argument("--batches", type=int, default=8, help="batches to check (default 8)")
    parser.add_argument("--split", default="train", choices=("train", "heldout"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args):
    """Exit status 0 if every promise holds, 1 if one does not."""
    from data.examples.example_store import open_source
    from data.inspection.batch_report import inspect
    from data.mixed_stream import open_stream, split_stream
    from pretrain.config import load
    from pretrain.convert import name_of
    from pretrain.convert.tokenizer import build

    if args.batches < 1 or args.rows < 0:
        raise ValueError(
            f"--batches {args.batches} --rows {args.rows}: at least one batch, and 0 rows or more"
        )
    settings = load(args.config, args.overrides)
    if not settings.data.store:
        raise ValueError(
            f"{args.config} names no token store: add data.store=FOLDER, a folder that prepare wrote"
        )
    store = open_source(settings.data.store)
    stream = open_stream(store, settings.data, split=args.split, seed=settings.train.seed)
    exported = build(store.vocabulary, name_of(settings.model))
    where = {"store": str(store.path), "split": args.split}
    reports = {
        part: where | inspect(each, args.step, args.batches, args.rows, exported.token_to_id)
        for part, each in split_stream(stream).items()
    }
    passed = all(report["passed"] for report in reports.values())
    if args.json:
        mixed = where | {"passed": passed, "parts": reports}
        print(json.dumps(reports.get("", mixed)))
    else:
        for part, report in reports.items():
            show(report, part)
    return 0 if passed else 1


def show(report, part=""):
    """Print a report for reading; part: of a mixture."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=False)
    where = f"step {report['step']:,}, {report['split']} part of {report['store']}"
    console.print(f"{part + ': ' if part else ''}[bold]{report['objective']}[/bold], {where}")
    for row in report["rows"]:
        console.print(
            Panel(text_of(row), title=f"row {row['row']:,} of the split", title_align="left")
        )
    table = Table(
        "promise",
        "seen",
        "expected",
        "",
        title=f"over {report['batches']} batches",
        title_justify="left",
    )
    for check in report["checks"]:
        verdict = "[green]holds[/green]" if check["passed"] else "[bold red]BROKEN[/bold red]"
        table.add_row(check["name"], check["seen"], check["expected"], verdict)
    console.print(table)
    broken = sum(not check["passed"] for check in report["checks"])
    console.print(
        f"[bold red]{broken} broken[/bold red]" if broken else "[green]every promise holds[/green]"
    )


STYLES = {"as [MASK]": "bold green", "by another word": "bold yellow", "as itself": "bold blue"}


def text_of(row):
    """A row as rich text: masked words in colour and listed, segments and sentinels set off."""
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
        if mask["how"] != "as [MASK]":
            shown = f", {mask['shown']}" if mask["shown"] != mask["target"] else ""
            text.append(f" (shown {mask['how']}{shown})", style="dim")
    return text
