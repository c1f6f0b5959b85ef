"""report --workdir W: one HTML page about a run, its curves as images, and how its time was spent.

The page needs no network (docs/inside.md).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pretrain.config import read_settings
from pretrain.host.extras import how_to_install

if TYPE_CHECKING:
    from pretrain.reporting.patch_figures import PatchFigures
    from pretrain.workdir.workdir import Workdir


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
        "--output",
        help="folder for the page and the images (default: WORKDIR/report; "
        "required for a run in a bucket)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the page and the images and print the goodput of each run; return 0."""
    import importlib.util

    from pretrain.reporting.run_report import write_report
    from pretrain.workdir import goodput
    from pretrain.workdir.workdir import Workdir

    has_images = importlib.util.find_spec("matplotlib") is not None
    for path in write_report(args.workdir, args.output, has_images, find_patch_figures):
        print(f"wrote {path}")
    if not has_images:
        print(f"no images were written; they need matplotlib: {how_to_install('report')}")
    for workdir in args.workdir:
        # The page has reported the unreadable ones.
        if record := goodput.read_ledger(Workdir.open(workdir) / goodput.NAME, consequence=""):
            print(f"{workdir}: {goodput.format_goodput(record['seconds'], record['starts'])}")
    return 0


def find_patch_figures(workdir: Workdir) -> PatchFigures | None:
    """Return what the model of a workdir has learned to see.

    None for a model that does not read the patches of images, before the first checkpoint, and for
    a diverged model.
    """
    model = read_settings(workdir / "config.json").get("model")
    if not isinstance(model, dict) or "patch_size" not in model:
        return None
    import jax
    import numpy as np

    from pretrain.inference.images.patch_statistics import compute_patch_figures
    from pretrain.workdir.checkpoints import Checkpoints
    from pretrain.workdir.trained import open_trained

    with Checkpoints(workdir, read_only=True) as checkpoints:
        if not checkpoints.list_steps():
            print(f"{workdir}: no checkpoint yet, so the filters are not drawn")
            return None
    trained = open_trained(workdir)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained.params)):
        print(f"{workdir}: parameters are not finite, so the filters are not drawn")
        return None
    return compute_patch_figures(trained)
