"""Keep the results of the benchmarks: all runs in `results/NAME.json`, the page `results/NAME.md`.

A page shows the newest run first and folds the older ones into one history.
`python -m benchmarks.results_pages` makes all pages again.

A file holds {"title", "introduction", "results": [{"date", "environment", "blocks"}]}, the oldest
result first. A block is a paragraph of Markdown or a table {"columns", "rows"}. A file may hold
"summary": {"case": columns, "columns": columns}: the page then opens with the newest cells of each
case and machine, and folds all results. "notes" is Markdown at the end of the page, for figures of
single runs.
"""

import argparse
import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

RESULTS = pathlib.Path(__file__).parent / "results"
HEADING = re.compile(r"## (\d{4}-\d\d-\d\d), (.+)")


def split_cells(line: str) -> list[str]:
    """Return the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split(" |")]


def parse_blocks(lines: Iterable[str]) -> list[str | dict[str, Any]]:
    """Return the paragraphs and tables of Markdown lines."""
    blocks: list[str | dict[str, Any]] = []
    for part in re.split(r"\n\s*\n", "\n".join(lines).strip()):
        part_lines = part.splitlines()
        if len(part_lines) > 1 and re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", part_lines[1].strip()):
            columns, _, *rows = part_lines
            blocks.append(
                {"columns": split_cells(columns), "rows": [split_cells(row) for row in rows]}
            )
        elif part:
            blocks.append(part)
    return blocks


def parse_result(lines: Sequence[str]) -> dict[str, Any]:
    """Return the result that a section describes: a heading "## DATE, ENVIRONMENT", then blocks.

    Raises ValueError where the heading is another.
    """
    heading = HEADING.fullmatch(lines[0].strip())
    if not heading:
        raise ValueError(f"a result begins with '## DATE, MACHINE, ...', found {lines[0][:80]!r}")
    date, environment = heading.groups()
    return {"date": date, "environment": environment, "blocks": parse_blocks(lines[1:])}


def format_block(block: str | dict[str, Any]) -> str:
    """Return a block as Markdown."""
    if isinstance(block, str):
        return block
    header, *rows = (f"| {' | '.join(row)} |" for row in (block["columns"], *block["rows"]))
    return "\n".join([header, "|---" * len(block["columns"]) + "|", *rows])


def format_page(page: dict[str, Any]) -> str:
    """Return a page as Markdown: the newest result, then the older ones, newest first, folded."""
    parts = [f"# {page['title']}", *filter(None, [page["introduction"]])]
    newest, *older = reversed(page["results"])
    if "summary" in page:
        parts += ["## Newest of each case", format_block(summarise(page))]
        older = [newest, *older]
    else:
        parts += [f"## {newest['date']}, {newest['environment']}"]
        parts += map(format_block, newest["blocks"])
    if older:
        parts.append("## History")
    for result in older:
        parts.append(f"<details>\n<summary>{result['date']}, {result['environment']}</summary>")
        parts += [*map(format_block, result["blocks"]), "</details>"]
    parts += filter(None, [page.get("notes", "")])
    return "\n\n".join(parts) + "\n"


def name_machine(environment: str) -> str:
    """Return the processor of an environment, its cores, and its accelerator, if there is one."""
    processor, *others = environment.split(", ")
    return ", ".join([processor, *(each for each in others if "cores" in each or "NVIDIA" in each)])


def summarise(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the newest cells of each case on each machine, and their newest date.

    A cell is the number in front of the range that a result has in brackets.
    """
    case, columns = page["summary"]["case"], page["summary"]["columns"]
    newest: dict[tuple[str, ...], dict[str, str]] = {}
    for result in reversed(page["results"]):
        for block in result["blocks"]:
            if isinstance(block, str) or not set(case) <= set(block["columns"]):
                continue
            for row in block["rows"]:
                cells = dict(zip(block["columns"], row))
                key = (name_machine(result["environment"]), *(cells[name] for name in case))
                found = newest.setdefault(key, {"date": result["date"]})
                for name in columns:
                    if value := cells.get(name, "").partition(" (")[0]:
                        found.setdefault(name, value)
    rows = [
        [*key[1:], *(cells.get(name, "") for name in columns), key[0], cells["date"]]
        for key, cells in sorted(newest.items(), key=lambda item: (item[0][1:], item[0][0]))
        if any(name in cells for name in columns)
    ]
    return {"columns": [*case, *columns, "machine", "date"], "rows": rows}


def read_page(name: str) -> dict[str, Any]:
    """Return the results of a benchmark; a page without results where it has none yet."""
    path = RESULTS / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    return {"title": name.replace("_", " ").capitalize(), "introduction": "", "results": []}


def write_page(name: str, page: dict[str, Any]) -> None:
    """Write the results of a benchmark and the page that shows them."""
    RESULTS.mkdir(exist_ok=True)
    for suffix, text in (("json", json.dumps(page, indent=1) + "\n"), ("md", format_page(page))):
        partial = RESULTS / f"{name}.{suffix}.partial"
        partial.write_text(text)
        os.replace(partial, RESULTS / f"{name}.{suffix}")


def add_result(name: str, lines: Sequence[str], title: str = "") -> None:
    """Print the section of a new result and add it to the results of a benchmark.

    Args:
      name: of the file in benchmarks/results, without a suffix.
      lines: the section as Markdown, as `parse_result` reads it.
      title: of a page that is new.
    """
    print("\n".join(lines))
    page = read_page(name)
    if title:
        page["title"] = title
    page["results"].append(parse_result(lines))
    write_page(name, page)


def main() -> None:
    """Make all pages again."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    for path in sorted(RESULTS.glob("*.json")):
        write_page(path.stem, read_page(path.stem))
        print(f"{path.stem}.md")


if __name__ == "__main__":
    main()
