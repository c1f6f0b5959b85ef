"""report --workdir W: one HTML page about a run, its curves as images, and how its time was spent.

The page needs no network (docs/inside.md).
"""

from __future__ import annotations

import argparse

from etils import epath

from pretrain.extras import how_to_install


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report` to a parser."""
    parser.add_argument(
        "--workdir",
        required=True,
        nargs="+",
        action="extend",
        help="workdir of a run, or of several runs to compare",
    )
    parser.add_argument(
        "--output", help="folder for the page and the images (default: WORKDIR/report)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the page and the images and print the goodput of each run; return 0."""
    import importlib.util

    from pretrain.reporting.run_report import write_report
    from pretrain.workdir import goodput

    has_images = importlib.util.find_spec("matplotlib") is not None
    for path in write_report(args.workdir, args.output, has_images):
        print(f"wrote {path}")
    if not has_images:
        print(f"no images were written; they need matplotlib: {how_to_install('report')}")
    for workdir in args.workdir:
        if record := goodput.read_ledger(epath.Path(workdir) / goodput.NAME):
            print(f"{workdir}: {goodput.format_goodput(record['seconds'], record['starts'])}")
    return 0
