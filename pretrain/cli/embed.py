"""embed --workdir W --input TEXT --output F.npz: the vectors of texts (docs/embeddings.md).

With --pairs FILE it compares the cosines of pairs of texts with their scores, as STS-B does.
"""

from __future__ import annotations

import argparse

from pretrain.cli.features import SUFFIXES, check_arguments, write_arrays
from pretrain.inference.random_head import add_checkpoint_arguments, name_parameters
from pretrain.inference.text_records import read_texts

POOLINGS = ("mean", "cls", "last")
CORRELATIONS = ("spearman", "pearson")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `embed` to a parser."""
    add_embedder_arguments(parser)
    texts = parser.add_mutually_exclusive_group(required=True)
    texts.add_argument(
        "--input",
        metavar="TEXT",
        help="file with one text per line, or a .jsonl, .tsv or .csv file with a column `text`",
    )
    texts.add_argument(
        "--pairs",
        metavar="FILE",
        help="print how well cosines follow scores: sentence1, sentence2, score of a .jsonl, .tsv "
        "or .csv file",
    )
    parser.add_argument("--output", metavar="FILE", help=f"new {' or '.join(SUFFIXES)} file")
    parser.add_argument("--prompt", default="", metavar="TEXT", help="what stands before each text")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")


def add_embedder_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose a model and its vectors to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run, best of an embedder")
    add_checkpoint_arguments(parser)
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        help="the vector: mean of the states of all tokens, or the state of the first or the last "
        "(default: the embedder's own; of another encoder the mean, of a decoder the last)",
    )
    parser.add_argument(
        "--width",
        type=int,
        metavar="D",
        help="read the first D components of a vector (Matryoshka; default: all)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="B",
        help="texts per batch (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the vectors of texts, or print the correlations of pairs; return 0."""
    if args.pairs:
        return compare_pairs(args)
    if not args.output:
        raise ValueError("--input: give --output FILE, to which the vectors are written")
    output = check_arguments(args)
    records = read_texts(args.input)
    embedder, trained = open_embedder(args, args.prompt)
    texts = [record["text"] for _, record in records]
    vectors_ND = embedder(texts, [place for place, _ in records])
    metadata = {
        "workdir": str(args.workdir),
        "step": trained.step,
        "parameters": trained.parameters,
        "input": str(args.input),
        "pooling": embedder.config.pooling,
        "prompt": args.prompt,
    }
    write_arrays(output, {"vectors": vectors_ND}, metadata)
    named = name_parameters(trained.step, args.parameters)
    print(f"{output}: {len(texts):,} texts, {named} of {args.workdir}")
    print(f"  vectors           {vectors_ND.dtype!s:<9}{list(vectors_ND.shape)}")
    if embedder.num_cut:
        print(f"{embedder.num_cut:,} texts are longer than {embedder.length} tokens and were cut")
    return 0


def compare_pairs(args: argparse.Namespace) -> int:
    """Print the correlations of the cosines of pairs with their scores; return 0."""
    from data.examples.text_sets import has_scores, read_text_sets
    from pretrain.evaluation.task_metrics import METRICS, check_metrics

    if args.output:
        raise ValueError("--output is for the vectors of --input; --pairs prints its scores")
    check_metrics(CORRELATIONS, "similarity")
    examples, columns = read_text_sets(args.pairs)
    if not has_scores(columns):
        raise ValueError(f"{args.pairs}: has {', '.join(columns)}; expected two texts and a score")
    embedder, trained = open_embedder(args, args.prompt)
    import numpy as np

    from pretrain.inference.vectors.embedding import normalize_rows

    places = [example.location for example in examples]
    first_ND, second_ND = (
        normalize_rows(embedder([example.texts[side] for example in examples], places))
        for side in (0, 1)
    )
    cosines_N = (first_ND * second_ND).sum(axis=1)
    rows_N3 = np.stack([cosines_N, [each.label for each in examples], np.ones(len(places))], axis=1)
    print(f"{name_parameters(trained.step, args.parameters)}, {len(examples):,} pairs")
    for name in CORRELATIONS:
        print(f"{name:<10}{METRICS[name].compute_score(rows_N3, None, None):.4f}")
    return 0


def open_embedder(args: argparse.Namespace, prompt: str = "") -> tuple:
    """Return the `TextEmbedder` of the arguments, and the checkpoint that it reads.

    Raises ValueError if the model has no encoder, or --width is not in its vectors.
    """
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}: must be at least 1")
    from pretrain.inference.vectors.embedding import TextEmbedder
    from pretrain.workdir.trained import open_trained

    trained = open_trained(args.workdir, args.step, args.parameters)
    embedder = TextEmbedder(
        trained,
        pooling=args.pooling,
        width=args.width,
        batch_size=args.batch_size,
        prompt=prompt,
    )
    return embedder, trained
