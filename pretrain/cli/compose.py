"""compose --workdir W --output NAME: continue a piece of music (docs/music.md).

Writes NAME.mid, its piano roll NAME.svg, and the tokens NAME.txt, of which `attention` draws the
attention weights.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import TYPE_CHECKING

from data.corpus.paths import check_local
from pretrain.cli.output_file import check_output_file
from pretrain.cli.prepare_music import check_libraries
from pretrain.inference.random_head import add_checkpoint_arguments

if TYPE_CHECKING:
    import numpy as np

    from data.music.encodings import MusicEncoding
    from pretrain.workdir.trained import Trained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compose` to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run on a store of music")
    add_checkpoint_arguments(parser)
    parser.add_argument("--output", required=True, metavar="NAME", help="new files NAME.mid, ...")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--prompt", metavar="FILE", help="a MIDI file whose beginning is continued")
    given.add_argument(
        "--piece",
        type=int,
        default=0,
        metavar="N",
        help="the number of a held-out piece of the run's store that is continued, from 0 "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=int,
        default=128,
        metavar="T",
        help="tokens of the piece that are given (default: %(default)s)",
    )
    parser.add_argument(
        "--length",
        type=int,
        default=384,
        metavar="T",
        help="the largest number of tokens to compose (default: %(default)s)",
    )
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="of the sampling (default: 1)"
    )
    parser.add_argument(
        "--top-p",
        type=float,
        default=0.95,
        metavar="P",
        help="sample from the smallest set of tokens whose probabilities sum to P "
        "(default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sampling (default: 0)")
    parser.add_argument("--overwrite", action="store_true", help="replace files of these names")


def run(args: argparse.Namespace) -> int:
    """Compose, write the files and print their names; return 0."""
    for name in ("keep", "length"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} {getattr(args, name)}: must be at least 1")
    check_local(args.output, "the files")
    paths = {kind: pathlib.Path(f"{args.output}.{kind}") for kind in ("mid", "svg", "txt")}
    for path in paths.values():
        check_output_file(path, args.overwrite, [args.prompt])
    check_libraries({"mido"})
    from data.music.encodings import find_encoding
    from data.music.midi_files import format_midi
    from data.store.atomic import write_atomically
    from pretrain.reporting.piano_roll import draw_piano_roll
    from pretrain.workdir.trained import open_trained

    trained = open_trained(
        args.workdir, args.step, args.parameters, report=lambda text: print(text, file=sys.stderr)
    )
    encoding = find_encoding(trained.vocabulary)
    name, ids = read_prompt(args, trained, encoding)
    given = [int(i) for i in ids[: args.keep]]
    composed = compose_ids(args, trained, encoding, given)
    piece = encoding.decode(given + composed, str(args.output))
    given_until = encoding.decode(given, name).end
    title = (
        f"{name}, and from {given_until:g} {piece.unit} on step {trained.step:,} of {args.workdir}"
    )
    picture = draw_piano_roll(piece, title, given_until)
    paths["mid"].parent.mkdir(parents=True, exist_ok=True)
    write_atomically(paths["mid"], format_midi(piece))
    write_atomically(paths["svg"], picture)
    tokens = trained.vocabulary.pieces
    write_atomically(paths["txt"], " ".join(tokens[i] for i in given + composed) + "\n")
    print(f"{len(given):,} tokens of {name}, {len(composed):,} tokens composed")
    print("\n".join(f"wrote {path}" for path in paths.values()))
    return 0


def read_prompt(
    args: argparse.Namespace, trained: Trained, encoding: MusicEncoding
) -> tuple[str, np.ndarray]:
    """Return the name and the ids of the piece that is continued.

    Raises ValueError if the MIDI file cannot be encoded, or the store has no such piece.
    """
    from data.music.midi_files import read_midi
    from data.music.music_store import MusicStore

    if args.prompt:
        return pathlib.Path(args.prompt).name, encoding.encode(
            read_midi(args.prompt, encoding.unit)
        )
    pieces = list(MusicStore.open(trained.run.data.store).read_pieces("heldout"))
    if not 0 <= args.piece < len(pieces):
        raise ValueError(
            f"--piece {args.piece}: {trained.run.data.store} has the held-out pieces 0 to "
            f"{len(pieces) - 1}"
        )
    return pieces[args.piece]


def compose_ids(
    args: argparse.Namespace, trained: Trained, encoding: MusicEncoding, given: list[int]
) -> list[int]:
    """Return the ids that continue those that are given, up to the end of the piece."""
    from models.generation.decoding import Sample
    from pretrain.inference.text_generation import ContinuationWriter

    strategy = Sample(temperature=args.temperature, top_p=args.top_p)
    writer = ContinuationWriter(trained, args.length, 1, strategy, seed=args.seed)
    return writer.generate_ids([[*encoding.opening, *given]], 0)[0]
