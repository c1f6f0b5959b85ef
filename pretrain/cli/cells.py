"""cells --workdir W --input TEXT.txt --output PAGE.html: what the cells of an LSTM know of a text.

For each property that is computed from the text (inside quotes, position in the line, bracket
depth, position in the word) the page has the cell of most mutual information with it, and the text
coloured by tanh of that cell (docs/inside.md).
"""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING

from data.store.atomic import write_atomically
from pretrain.cli.output_file import check_output_file
from pretrain.inference.random_head import add_checkpoint_arguments

if TYPE_CHECKING:
    from pretrain.inference.cells.best_cells import BestCells
    from pretrain.inference.cells.read_text import ReadText
    from pretrain.reporting.cell_page import ColouredText

LEAST = 100  # characters, from which information can be measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cells` to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    add_checkpoint_arguments(parser)
    parser.add_argument("--input", required=True, metavar="FILE", help="a text, as one document")
    parser.add_argument("--output", required=True, metavar="PAGE", help="new .html file")
    parser.add_argument(
        "--characters",
        type=int,
        default=20_000,
        metavar="N",
        help="read the first N characters of the text (default: %(default)s)",
    )
    parser.add_argument(
        "--shown",
        type=int,
        default=1_500,
        metavar="N",
        help="show about N characters for each property (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace PAGE")


def run(args: argparse.Namespace) -> int:
    """Measure the cells and write the page; return 0."""
    output, text = check_arguments(args)
    from pretrain.inference.cells.best_cells import describe_best, find_best_cells
    from pretrain.inference.cells.read_text import check_is_recurrent, read_text
    from pretrain.reporting.cell_page import render_cell_page
    from pretrain.workdir.trained import open_trained
    from pretrain.workdir.workdir import Workdir

    check_is_recurrent(Workdir.open(args.workdir).run.model)  # before parameters are read
    trained = open_trained(args.workdir, args.step, args.parameters)
    read = read_text(trained, text)
    found = find_best_cells(read)
    title = f"Cells of {pathlib.Path(args.workdir).name}, step {trained.step:,}"
    notes = (
        f"{len(text):,} characters of {pathlib.Path(args.input).name}, "
        f"{read.cells_TC.shape[1]:,} cells. A character is coloured by tanh(c) of the cell after "
        "it: blue is negative, red is positive. Underlined: where the property holds.",
    )
    page = render_cell_page(title, notes, [make_section(best, read, args.shown) for best in found])
    write_atomically(output, page)
    for best in found:
        print(describe_best(best, read))
    print(f"{output}: {len(page.encode()) / 1e3:,.0f} kB")
    return 0


def check_arguments(args: argparse.Namespace) -> tuple[pathlib.Path, str]:
    """Return the path of the page and the text, and check the arguments.

    Raises:
      ValueError: arguments are out of range, or the text is too short or not in UTF-8.
      FileExistsError: the page exists and --overwrite is not given.
      FileNotFoundError: there is no such text, or no folder for the page.
    """
    output, source = pathlib.Path(args.output), pathlib.Path(args.input)
    if output.suffix != ".html":
        raise ValueError(f"--output {output}: the name must end in .html")
    check_output_file(output, args.overwrite, [source])
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: the folder of --output does not exist")
    for name in ("characters", "shown"):
        if getattr(args, name) < LEAST:
            raise ValueError(f"--{name} {getattr(args, name)}: must be at least {LEAST}")
    if not source.is_file():
        raise FileNotFoundError(f"--input {source}: there is no such file")
    try:
        text = source.read_text(encoding="utf-8")[: args.characters]
    except UnicodeDecodeError as error:
        raise ValueError(f"--input {source}: not UTF-8 at byte {error.start:,}") from None
    if len(text) < LEAST:
        raise ValueError(
            f"--input {source}: {len(text)} characters; information is measured from at least "
            f"{LEAST}"
        )
    return output, text


def make_section(best: BestCells, read: ReadText, shown: int) -> ColouredText:
    """Return the section of a property: its best cells, and the text by the best one."""
    from pretrain.inference.cells.best_cells import choose_excerpt, describe_best
    from pretrain.reporting.cell_page import ColouredText

    if not best.ranked:
        return ColouredText(best.property.name, (describe_best(best, read),), [])
    places, (cell, _), *others = choose_excerpt(best, shown), *best.ranked
    ends = read.end_T[places]
    begins = [read.end_T[places.start - 1] if places.start else 0, *ends[:-1]]
    parts = [
        (read.text[begin:end], float(x), best.property.is_marked and bool(value))
        for begin, end, x, value in zip(
            begins, ends, read.cells_TC[places, cell], best.value_T[places], strict=True
        )
    ]
    next_ones = "; ".join(f"{read.name_cell(other)}: {bits:.3f}" for other, bits in others)
    return ColouredText(
        best.property.name, (describe_best(best, read), f"Next: {next_ones} bits"), parts
    )
