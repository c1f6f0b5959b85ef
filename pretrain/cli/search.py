"""search --workdir W --corpus C --queries Q [--qrels R]: rank texts by their vectors.

With judgements the ranking is scored (docs/embeddings.md).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence

import numpy as np

from data.corpus.json_lines import format_json
from data.examples.collections import Passage, check_judgements, read_judgements, read_passages
from data.members import import_extra
from data.store.atomic import replace_file
from pretrain.cli.embed import add_embedder_arguments, open_embedder
from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.evaluation.retrieval import RECALL_AT, score_rankings

SHOWN, CHARACTERS = 3, 100  # documents of a query on the terminal, and of the text of each
LABEL = 30  # characters of a text in the picture


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `search` to a parser."""
    add_embedder_arguments(parser)
    files = parser.add_argument_group("files: .jsonl, .tsv or .csv, in the form of BEIR")
    files.add_argument(
        "--corpus", required=True, metavar="FILE", help="documents: text, and _id and title if any"
    )
    files.add_argument("--queries", metavar="FILE", help="queries: text, and _id if any")
    files.add_argument("--query", metavar="TEXT", help="a single query, in place of --queries")
    files.add_argument(
        "--qrels",
        metavar="FILE",
        help="judgements for a score: query-id, corpus-id, score",
    )
    files.add_argument("--output", metavar="FILE", help="new .jsonl file of the rankings")
    files.add_argument(
        "--picture", metavar="FILE", help="new .png file: documents and queries along two axes"
    )
    add_overwrite(files, "a FILE")
    parser.add_argument("--query-prompt", default="", metavar="TEXT", help="before each query")
    parser.add_argument("--corpus-prompt", default="", metavar="TEXT", help="before each document")
    parser.add_argument(
        "--top",
        type=int,
        default=RECALL_AT,
        metavar="K",
        help="documents of a ranking (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Rank the documents of each query, and print the best or the scores; return 0."""
    check_arguments(args)
    documents = read_passages(args.corpus)
    queries = (
        read_passages(args.queries)
        if args.queries
        else [Passage("1", args.query, "the command line")]
    )
    judgements = {}
    if args.qrels:
        judgements = read_judgements(args.qrels)
        check_judgements(judgements, queries, documents, args.qrels)
    embedder, _ = open_embedder(args)
    from pretrain.inference.vectors.embedding import normalize_rows
    from pretrain.inference.vectors.nearest import find_nearest

    vectors = []
    for prompt, passages in ((args.query_prompt, queries), (args.corpus_prompt, documents)):
        embedder.prompt = prompt
        texts, places = [each.text for each in passages], [each.place for each in passages]
        vectors.append(normalize_rows(embedder(texts, places)))
    query_QD, document_ND = vectors
    scores_QK, index_QK = find_nearest(query_QD, document_ND, args.top)
    rankings = {
        query.name: [documents[i] for i in row] for query, row in zip(queries, index_QK.tolist())
    }
    if args.output:
        write_rankings(args.output, queries, rankings, scores_QK.tolist())
    if args.picture:
        draw_collection(args.picture, queries, documents, np.concatenate(vectors))
    if judgements:
        names = {query: [each.name for each in ranking] for query, ranking in rankings.items()}
        for name, score in score_rankings(names, judgements).items():
            print(f"{name:<12}{score:.4f}")
    elif not (args.output or args.picture):
        for query, scores_K in zip(queries, scores_QK.tolist()):
            print_best(query, rankings[query.name], scores_K)
    return 0


def check_arguments(args: argparse.Namespace) -> None:
    """Raise an error for arguments that contradict each other, before anything is read."""
    if (args.queries is None) == (args.query is None):
        raise ValueError("give --queries FILE, or --query TEXT")
    if args.qrels and not args.queries:
        raise ValueError("--qrels: judgements are of the queries of a file; give --queries")
    if args.top < 1:
        raise ValueError(f"--top {args.top}: must be at least 1")
    if args.qrels and args.top < RECALL_AT:
        raise ValueError(f"--top {args.top}: recall@{RECALL_AT} reads {RECALL_AT} documents")
    if args.output:
        if os.path.splitext(args.output)[1] != ".jsonl":
            raise ValueError(f"--output {args.output}: the name must end in .jsonl")
        check_output_file(args.output, args.overwrite, [args.corpus, args.queries, args.qrels])
    if args.picture:
        if os.path.splitext(args.picture)[1] != ".png":
            raise ValueError(f"--picture {args.picture}: the name must end in .png")
        check_output_file(args.picture, args.overwrite, [args.corpus, args.queries], "--picture")
        import_extra("matplotlib", "report", "--picture")


def write_rankings(
    output: str,
    queries: Sequence[Passage],
    rankings: Mapping[str, Sequence[Passage]],
    scores_QK: Sequence[Sequence[float]],
) -> None:
    """Write a line a query: its _id, and the names and scores of its documents."""
    with replace_file(output) as new, open(new, "w", encoding="utf-8") as file:
        for query, scores_K in zip(queries, scores_QK, strict=True):
            names = [document.name for document in rankings[query.name]]
            line = {"_id": query.name, "documents": names, "scores": scores_K}
            file.write(format_json(line) + "\n")
    print(f"{output}: {len(queries):,} rankings")


def draw_collection(
    output: str,
    queries: Sequence[Passage],
    documents: Sequence[Passage],
    vectors_ND: np.ndarray,
) -> None:
    """Draw queries and documents along the two principal axes of their vectors."""
    from pretrain.inference.word_senses import draw_points, project_pca

    points_N2, shares = project_pca(vectors_ND)
    shown = [*queries, *documents]
    labels = ["queries"] * len(queries) + ["documents"] * len(documents)
    title = f"PCA ({shares.sum():.0%} of the variance)"
    texts = [each.text[:LABEL] for each in shown]
    name = f"documents: {len(documents):,}, queries: {len(queries):,}"
    with replace_file(output) as new:
        draw_points({title: points_N2}, labels, texts, name, new)
    print(f"{output}: {name}")


def print_best(query: Passage, ranking: Sequence[Passage], scores_K: Sequence[float]) -> None:
    """Print the best documents of a query."""
    print(query.text)
    for document, score in zip(ranking[:SHOWN], scores_K):
        print(f"  {score:6.3f}  {document.name}  {document.text[:CHARACTERS]}")
