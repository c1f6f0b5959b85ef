"""embed --workdir W --input TEXT --output F.npz: the vectors of texts (docs/embeddings.md).

With --pairs, --classes or --clusters it scores them instead, on labelled files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from data.members import import_extra
from pretrain.cli.features import SUFFIXES, check_arguments, write_arrays
from pretrain.inference.random_head import add_checkpoint_arguments, name_parameters
from pretrain.inference.text_records import read_texts

POOLINGS = ("mean", "cls", "last")


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
    texts.add_argument(
        "--classes",
        metavar="FILE",
        help="print how well a logistic regression on the vectors of FILE (text, label) classifies "
        "those of --test",
    )
    texts.add_argument(
        "--clusters",
        metavar="FILE",
        help="print how well clusters of the vectors agree with labels (text, label)",
    )
    parser.add_argument("--test", metavar="FILE", help="with --classes: the texts to classify")
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="with --classes: train on N texts of each class, the mean of ten draws; MTEB takes 8 "
        "(default: all texts, once)",
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
    """Write the vectors of texts, or print the scores of labelled files; return 0."""
    if (args.classes is None) != (args.test is None):
        raise ValueError("--classes FILE and --test FILE belong together: give both")
    if args.samples is not None and (args.samples < 1 or not args.classes):
        raise ValueError(f"--samples {args.samples}: at least 1 text of a class, with --classes")
    if args.input:
        return write_vectors(args)
    if args.output:
        raise ValueError("--output is for the vectors of --input; what else is scored is printed")
    kind = next(name for name in SCORERS if vars(args)[name])
    import_extra("scipy" if kind == "pairs" else "sklearn", "metrics", f"--{kind}")
    read = SCORERS[kind](args)
    embedder, trained = open_embedder(args, args.prompt)
    count, scores = read(embedder)
    print(f"{name_parameters(trained.step, args.parameters)}, {count}")
    for name, score in scores.items():
        print(f"{name:<10}{score:.4f}")
    return 0


def write_vectors(args: argparse.Namespace) -> int:
    """Compute the vectors, write them and print the shape; return 0."""
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
    return 0


# ---- scores on labelled files --------------------------------------------------------

# (embedder) -> what was scored, {name: score}
Scorer = Callable[[Any], tuple[str, Mapping[str, float]]]


def read_pairs(args: argparse.Namespace) -> Scorer:
    """Return what scores the cosines of a file's pairs, which are read at once."""
    from data.examples.text_sets import has_scores, read_text_sets

    examples, columns = read_text_sets(args.pairs)
    if not has_scores(columns):
        raise ValueError(f"{args.pairs}: has {', '.join(columns)}; expected two texts and a score")

    def score(embedder: Any) -> tuple[str, Mapping[str, float]]:
        from pretrain.evaluation.vector_scores import score_similarity
        from pretrain.inference.vectors.embedding import normalize_rows

        places = [example.location for example in examples]
        first_ND, second_ND = (
            normalize_rows(embedder([example.texts[side] for example in examples], places))
            for side in (0, 1)
        )
        labels: Any = [example.label for example in examples]
        scores = score_similarity((first_ND * second_ND).sum(axis=1), labels)
        return f"{len(examples):,} pairs", scores

    return score


def read_labelled(source: str) -> tuple[list[str], list[str], list[str]]:
    """Return the texts, the labels and the places of a file's examples."""
    from data.examples.labelled_examples import Columns, parse_class, read_examples

    examples = read_examples(source, Columns(("text",), "label"), parse_class)
    texts, labels, places = zip(
        *((example.texts[0], str(example.label), example.location) for example in examples),
        strict=True,
    )
    return list(texts), list(labels), list(places)


def read_classes(args: argparse.Namespace) -> Scorer:
    """Return what scores a classifier of the vectors of two files, which are read at once."""
    train, test = read_labelled(args.classes), read_labelled(args.test)
    if len(set(train[1])) < 2:
        raise ValueError(f"{args.classes}: all texts have the label {train[1][0]!r}")

    def score(embedder: Any) -> tuple[str, Mapping[str, float]]:
        from pretrain.evaluation.vector_scores import score_classes

        vectors = [embedder(part[0], part[2]) for part in (train, test)]
        scores = score_classes(vectors[0], train[1], vectors[1], test[1], args.samples)
        drawn = "" if args.samples is None else f", ten draws of {args.samples} of each"
        return f"{len(test[0]):,} texts of {len(set(train[1]))} classes{drawn}", scores

    return score


def read_clusters(args: argparse.Namespace) -> Scorer:
    """Return what scores the clusters of a file's vectors, which is read at once."""
    texts, labels, places = read_labelled(args.clusters)

    def score(embedder: Any) -> tuple[str, Mapping[str, float]]:
        from pretrain.evaluation.vector_scores import score_clusters

        scores = score_clusters(embedder(texts, places), labels)
        return f"{len(texts):,} texts in {len(set(labels))} clusters", scores

    return score


SCORERS = {"pairs": read_pairs, "classes": read_classes, "clusters": read_clusters}


def open_embedder(args: argparse.Namespace, prompt: str = "") -> tuple[Any, Any]:
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
