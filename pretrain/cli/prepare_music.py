"""prepare-music SOURCE... --output STORE: turn music into a token store (docs/music.md)."""

from __future__ import annotations

import argparse
import importlib.util
import pathlib

from data.corpus.paths import check_local
from pretrain.host.extras import how_to_install


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare-music` to a parser."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="chorales (Bach's, of the package music21), a MIDI file, or a folder of MIDI files",
    )
    parser.add_argument("--output", required=True, metavar="STORE", help="folder for the store")
    parser.add_argument(
        "--encoding",
        choices=("voices", "events"),
        default="voices",
        help="voices: four voices on a grid of sixteenths; events: notes on and off, steps of "
        "10 ms, velocities (default: %(default)s)",
    )
    parser.add_argument(
        "--transpose",
        type=int,
        default=5,
        metavar="N",
        help="training rows are transposed by up to N semitones, up or down (default: %(default)s)",
    )
    parser.add_argument(
        "--held-out",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="share of the pieces in the held-out split, chosen by a hash of their notes "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--on-bad-file",
        choices=("refuse", "skip"),
        default="refuse",
        help="what to do with a MIDI file that cannot be read: stop with an error that names it, "
        "or leave it out and count it (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing store")


def run(args: argparse.Namespace) -> int:
    """Write the store and print a summary; return 0."""
    from data.music.music_store import CHORALES, MusicRequest, advise_encoding, write_music_store

    check_local(args.output, "the store")
    request = MusicRequest(
        tuple(args.sources), args.encoding, args.transpose, args.held_out, args.on_bad_file
    )
    needed = {"music21" if name == CHORALES else "mido" for name in args.sources}
    check_libraries(needed)
    store = write_music_store(request, pathlib.Path(args.output), args.overwrite, report=print)
    for name, split in store.manifest["splits"].items():
        print(f"{name:<9}{split['documents']:>10,} pieces{split['tokens']:>14,} tokens")
    for reason, entry in store.manifest["noted"].items():
        print(f"noted    {entry['count']:,} left out: {reason} (first: {entry['first']})")
    if advice := advise_encoding(args.encoding, store.manifest["noted"]):
        print(f"noted    {advice}")
    print(f"vocab    {store.vocabulary.size:,} ids ({args.encoding})")
    print(f"store    {store.path}")
    return 0


def check_libraries(names: set[str]) -> None:
    """Raise ValueError, which says how to install them, if libraries of the extra are missing."""
    for name in sorted(names):
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"this needs {name}: {how_to_install('music')}")
