"""prepare-captions FOLDER --output STORE: pictures with captions as words and visual tokens.

docs/words_and_pictures.md describes them.
"""

from __future__ import annotations

import argparse
import pathlib

from data.corpus.paths import check_local


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare-captions` to a parser."""
    parser.add_argument(
        "source",
        metavar="FOLDER",
        help="a folder with images and captions.jsonl, a line of which is "
        '{"image": "a.png", "caption": "a three left of a seven"}',
    )
    parser.add_argument("--output", required=True, metavar="STORE", help="folder for the store")
    for name, default, text in (
        ("--size", 48, "pixels of a side of a picture, to which the center of an image is resized"),
        ("--patch", 8, "pixels of a side of a patch"),
        ("--channels", 1, "1 of brightness, or 3 of red, green and blue"),
        ("--clusters", 256, "visual tokens: the centroids of the patches by k-means"),
    ):
        help_text = f"{text} (default: %(default)s)"
        parser.add_argument(name, type=int, default=default, metavar="N", help=help_text)
    parser.add_argument(
        "--held-out",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="share of the pictures in the held-out split, chosen by a hash of their bytes "
        "(default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing store")


def run(args: argparse.Namespace) -> int:
    """Write the store and print a summary; return 0."""
    from data.images.captioned_store import CaptionRequest, write_captioned_store
    from data.images.codebook import Grid
    from data.images.image_files import check_pillow

    check_local(args.output, "the store")
    check_pillow()
    grid = Grid(args.size, args.patch, args.channels)
    request = CaptionRequest(args.source, grid, args.clusters, args.held_out)
    store = write_captioned_store(request, pathlib.Path(args.output), args.overwrite, report=print)
    for name, split in store.manifest["splits"].items():
        print(f"{name:<9}{split['documents']:>10,} pictures{split['tokens']:>14,} tokens")
    vocabulary, longest = store.encoding, store.manifest["captions"]["longest"]
    words = vocabulary.first_patch
    print(f"vocab    {words:,} ids of words, {vocabulary.size - words:,} of visual tokens")
    print(f"rows     data.objective.length={longest + 3} holds the longest one")
    print(f"store    {store.path}")
    return 0
