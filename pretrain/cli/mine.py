"""mine --workdir W --train PAIRS --output TRIPLETS: hard negatives by the model's own vectors.

For each query these are the nearest positives of other queries (docs/embeddings.md).
"""

from __future__ import annotations

import argparse
import os

from data.corpus.json_lines import format_json
from data.examples.text_sets import has_scores, read_text_sets
from data.store.atomic import replace_file
from pretrain.cli.embed import add_embedder_arguments, open_embedder
from pretrain.cli.output_file import add_overwrite, check_output_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mine` to a parser."""
    add_embedder_arguments(parser)
    parser.add_argument(
        "--train", required=True, metavar="FILE", help="pairs: query and positive, as of finetune"
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="new .jsonl file with negatives"
    )
    add_overwrite(parser, "FILE")
    parser.add_argument(
        "--negatives",
        type=int,
        default=1,
        metavar="N",
        help="negatives of a query (default: %(default)s); a query that has fewer is left out",
    )
    parser.add_argument(
        "--skip",
        type=int,
        default=0,
        metavar="K",
        help="leave out the K nearest texts, which may be right answers (default: %(default)s)",
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=1.0,
        metavar="R",
        help="a negative's cosine is at most R times the positive's, for the same reason "
        "(default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the queries with their negatives, and print how many there are; return 0."""
    check_arguments(args)
    examples, columns = read_text_sets(args.train)
    if len(columns) < 2 or has_scores(columns):
        raise ValueError(f"{args.train}: has {', '.join(columns)}; expected query and positive")
    embedder, _ = open_embedder(args)
    from pretrain.inference.vectors.embedding import normalize_rows
    from pretrain.inference.vectors.hard_negatives import mine_negatives

    queries, positives = zip(*(example.texts[:2] for example in examples), strict=True)
    places = [example.location for example in examples]
    vectors = [normalize_rows(embedder(texts, places)) for texts in (queries, positives)]
    found = mine_negatives(
        queries, positives, *vectors, count=args.negatives, skip=args.skip, margin=args.margin
    )
    with replace_file(args.output) as new, open(new, "w", encoding="utf-8") as file:
        for query, positive, negatives in zip(queries, positives, found, strict=True):
            if len(negatives) == args.negatives:
                line = {"query": query, "positive": positive, "negatives": negatives}
                file.write(format_json(line, ensure_ascii=False) + "\n")
    full = sum(len(negatives) == args.negatives for negatives in found)
    print(f"{args.output}: {full:,} of {len(queries):,} queries with {args.negatives} negatives")
    return 0


def check_arguments(args: argparse.Namespace) -> None:
    """Raise an error for arguments out of range, before anything is read."""
    if args.negatives < 1:
        raise ValueError(f"--negatives {args.negatives}: must be at least 1")
    if args.skip < 0:
        raise ValueError(f"--skip {args.skip}: must be at least 0")
    if not args.margin > 0:
        raise ValueError(f"--margin {args.margin:g}: must be above 0")
    if os.path.splitext(args.output)[1] != ".jsonl":
        raise ValueError(f"--output {args.output}: the name must end in .jsonl")
    check_output_file(args.output, args.overwrite, [args.train])
