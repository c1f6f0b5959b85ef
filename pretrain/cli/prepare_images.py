"""prepare-images SOURCE... --output STORE: write a store of labelled images (docs/pictures.md)."""

from __future__ import annotations

import argparse
import pathlib

from data.corpus.paths import check_local


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare-images` to a parser."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="a folder with one folder of images for each class; FILE.npz with the arrays x, of "
        "uint8, and y; or tfds:NAME[:SPLIT]",
    )
    parser.add_argument("--output", required=True, metavar="STORE", help="folder for the store")
    parser.add_argument(
        "--validation",
        action="append",
        default=[],
        metavar="SOURCE",
        help="images of the held-out split, likewise; may be given several times",
    )
    parser.add_argument(
        "--held-out",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="without --validation: share of the images in the held-out split, chosen by a hash of "
        "their bytes (default: %(default)s)",
    )
    parser.add_argument(
        "--classes",
        metavar="FOLDER",
        help="the folder `images` of a workdir, whose classes and their order the store gets "
        "(default: as the first source)",
    )
    parser.add_argument(
        "--on-bad-image",
        choices=("refuse", "skip"),
        default="refuse",
        help="an image that cannot be decoded: stop with an error, or leave it out and count it "
        "(default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing store")


def run(args: argparse.Namespace) -> int:
    """Write the store and print a summary; return 0."""
    from data.images.encoding import load_image_encoding
    from data.images.image_store import ImageRequest, write_image_store
    from pretrain.host.extras import how_to_install

    check_local(args.output, "the store")
    request = ImageRequest(
        tuple(args.sources),
        tuple(args.validation),
        args.held_out,
        load_image_encoding(args.classes).classes if args.classes else (),
        args.on_bad_image,
    )
    try:
        import PIL  # noqa: F401 - is it installed?
    except ImportError:
        raise ValueError(f"this needs Pillow: {how_to_install('images')}") from None
    store = write_image_store(request, pathlib.Path(args.output), args.overwrite, report=print)
    for name, split in store.manifest["splits"].items():
        print(f"{name:<9}{split['documents']:>10,} images{split['tokens']:>16,} bytes")
    for reason, entry in store.manifest["images"]["skipped"].items():
        print(f"skipped  {entry['count']:,}: {reason} (first: {entry['first']})")
    classes = store.encoding.classes
    shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    print(f"classes  {len(classes):,}: {shown}")
    print(f"store    {store.path}")
    return 0
