"""score --workdir W "A text.": log probabilities of texts, and accuracies on minimal pairs.

A causal model and an encoder-decoder score a text by its likelihood, a masked model by the
probability of each token when it is masked (docs/scoring.md).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from data.corpus.json_lines import format_json
from data.examples.file_formats import FORMATS
from data.store.atomic import replace_file
from pretrain.api.scoring import (
    ScoringOptions,
    make_requests,
    note_unknown,
    open_scorer,
    score_changes,
    score_requests,
)
from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.host.extras import how_to_install
from pretrain.inference import record_files
from pretrain.inference.random_head import name_parameters
from pretrain.processes import processes
from pretrain.settings.verb_options import add_options, read_options

if TYPE_CHECKING:
    from pretrain.inference.scoring.minimal_pairs import MinimalPair
    from pretrain.inference.scoring.text_scoring import Text, TextScorer

CHUNK = 1024  # texts or pairs whose rows are in memory at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `score` to a parser."""
    add_options(parser, ScoringOptions)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--input",
        metavar="FILE",
        help="one text per line, or a .jsonl, .tsv or .csv file of texts or of minimal pairs",
    )
    files.add_argument(
        "--as",
        dest="file_format",
        choices=FORMATS,
        help="format of --input, whatever its name (default: the end of the name decides)",
    )
    files.add_argument(
        "--output", metavar="FILE", help="write each text or pair with its scores as JSON lines"
    )
    files.add_argument(
        "--picture", metavar="FILE", help="draw the accuracy of each group of pairs as a .png file"
    )
    add_overwrite(files, "FILE of --output and --picture")
    files.add_argument("--json", action="store_true", help="print one JSON object")
    processes.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Score all texts or pairs, and print and write the scores; return 0."""
    options = read_options(ScoringOptions, args)
    check_arguments(args)
    records = list(read_records(args))
    requests = make_requests(records, options)
    from pretrain.inference.scoring.minimal_pairs import MinimalPair

    is_paired = isinstance(requests[0], MinimalPair)
    if args.picture and not is_paired:
        raise ValueError("--picture draws minimal pairs, and these are texts")
    processes.join_run(args)
    import jax

    scorer = open_scorer(options)
    is_first = not jax.process_index()  # all processes have the same scores; the first writes them
    if options.mutations:
        results = score_changes(scorer, requests, options)
        if is_first:
            report_mutations(args, results, scorer.trained.step)
        return 0
    with open_writer(args.output if is_first else None) as write:
        sums = []
        for (_, record), result in zip(records, score_chunks(scorer, requests), strict=True):
            write(record, result)
            sums.append(summarize_pair(result) if is_paired else summarize_text(result))
    if not is_first:
        return 0
    note_unknown(scorer, requests)
    facts = {"step": scorer.trained.step, "by": scorer.way, "dtype": options.dtype}
    if args.parameters:
        facts["parameters"] = args.parameters
    named = f"{name_parameters(scorer.trained.step, args.parameters)}, by {scorer.way}"
    if options.both_strands:
        facts["both_strands"], named = True, f"{named}, both strands"
    if is_paired:
        report_pairs(args, requests, sums, facts, named)
    else:
        report_texts(args, records, sums, facts, named)
    return 0


def report_mutations(
    args: argparse.Namespace, results: Sequence[Mapping[str, Any]], step: int
) -> None:
    """Print the log-odds of mutations, the least probable first, or write them with --output."""
    if args.output:
        with record_files.open_line_writer(args.output) as write:
            for result in results:
                write(format_json(result))
    if args.json:
        print(format_json({"step": step, "marginals": args.marginals, "mutations": [*results]}))
        return
    if not args.output:
        for result in sorted(results, key=lambda one: one["log_odds"]):
            print(f"{result['log_odds']:10.3f}  {result['mutation']}")
    print(f"step {step:,}, log-odds in nats by {args.marginals} marginals")


class TextSums(NamedTuple):
    """What is printed of a text's score."""

    log_probability: float
    tokens: int
    num_bytes: int


def summarize_text(result: Mapping[str, Any]) -> TextSums:
    """Return what is printed of the result of a text."""
    return TextSums(result["log_probability"], result["tokens"], result["bytes"])


def summarize_pair(result: Mapping[str, Any]) -> tuple[float, float]:
    """Return the log probabilities of the good and of the bad text of a pair."""
    return result["good"]["log_probability"], result["bad"]["log_probability"]


@contextlib.contextmanager
def open_writer(
    path: str | None,
) -> Iterator[Callable[[Mapping[str, Any], Mapping[str, Any]], None]]:
    """Yield a function that writes a record with its result as a line of JSON; None: nowhere."""
    if path is None:
        yield lambda record, result: None
        return
    with record_files.open_line_writer(path) as write:

        def write_result(record: Mapping[str, Any], result: Mapping[str, Any]) -> None:
            given = {f"given_{key}" if key in result else key: record[key] for key in record}
            write(format_json({**given, **result}, ensure_ascii=False))

        yield write_result


def check_arguments(args: argparse.Namespace) -> None:
    """Check the arguments before anything is read.

    Raises:
      ValueError: they exclude each other, or a library is missing.
      FileExistsError: an output exists, and --overwrite is not given.
    """
    if bool(args.texts) == bool(args.input):
        raise ValueError('give either texts ("The cat sits.") or --input FILE')
    if args.file_format and not args.input:
        raise ValueError(f"--as {args.file_format} needs --input FILE")
    if args.output:
        check_output_file(args.output, args.overwrite, [args.input])
    if args.picture:
        if not str(args.picture).endswith(".png"):
            raise ValueError(f"--picture {args.picture}: the name must end in .png")
        check_output_file(args.picture, args.overwrite, [args.input, args.output], "--picture")
        if not importlib.util.find_spec("matplotlib"):
            raise ValueError(f"--picture needs matplotlib: {how_to_install('report')}")


def read_records(args: argparse.Namespace) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, record) of each text or pair. Raises ValueError if there is none."""
    if args.texts:
        yield from ((f"text {n}", {"text": text}) for n, text in enumerate(args.texts, 1))
        return
    number = 0
    readers = record_files.make_text_readers()
    for place, record in record_files.iterate_records(args.input, readers, args.file_format):
        if record is not record_files.BLANK_LINE:
            number += 1
            yield place, record
    if not number:
        raise ValueError(f"{args.input}: contains no texts")


def score_chunks(
    scorer: TextScorer, requests: Sequence[Text] | Sequence[MinimalPair]
) -> Iterator[dict[str, Any]]:
    """Yield the result of each text or pair, and show the progress on a terminal."""
    from pretrain.inference.batching import report_progress
    from pretrain.inference.progress import Progress

    with Progress(lambda: len(requests), "texts") as progress:
        for start in range(0, len(requests), CHUNK):
            chunk = requests[start : start + CHUNK]

            def show(share: float, start: int = start, chunk: Sequence[Any] = chunk) -> None:
                progress.show(start + share * len(chunk)) if share < 1 else progress.hide()

            with report_progress(show):
                results = score_requests(scorer, chunk)
            yield from results


def report_pairs(
    args: argparse.Namespace,
    pairs: Sequence[Any],
    scores: Sequence[Any],
    facts: Mapping[str, Any],
    named: str,
) -> None:
    """Print the accuracies on minimal pairs, and draw them with --picture."""
    from pretrain.inference.scoring import minimal_pairs

    counts = minimal_pairs.count_pairs(pairs, scores)
    if args.picture:
        from pretrain.inference.scoring.pair_chart import draw_pair_chart

        title = f"{pathlib.Path(args.workdir).name}, {named}"
        with replace_file(args.picture) as new:
            draw_pair_chart(counts, title, new)
    if args.json:
        print(format_json({**facts, **minimal_pairs.summarize_counts(counts)}))
        return
    print(f"{named}, {len(pairs):,} pairs")
    print("\n".join(minimal_pairs.format_counts(counts)))
    for path in filter(None, (args.output, args.picture)):
        print(path)


def report_texts(
    args: argparse.Namespace,
    records: Sequence[tuple[str, Mapping[str, Any]]],
    scores: Sequence[Any],
    facts: Mapping[str, Any],
    named: str,
) -> None:
    """Print the sums of all texts, and without --output the score of each."""
    from pretrain.inference.scoring.text_scoring import count_bits_per_byte

    total = math.fsum(score.log_probability for score in scores)
    tokens = sum(score.tokens for score in scores)
    sums = {
        "texts": len(scores),
        "tokens": tokens,
        "log_probability": total,
        "log_probability_per_token": total / tokens,
        "bits_per_byte": count_bits_per_byte(total, sum(score.num_bytes for score in scores)),
    }
    if args.json:
        print(format_json({**facts, **sums}))
        return
    if not args.output:
        for (_, record), score in zip(records, scores, strict=True):
            print(f"{score.log_probability:10.3f}  {score.tokens:5}  {record['text']}")
    print(
        f"{named}: {sums['texts']:,} texts, {tokens:,} tokens, {total:,.3f} nats, "
        f"{sums['log_probability_per_token']:.4f} a token, {sums['bits_per_byte']:.4f} bits a byte"
    )
    if args.output:
        print(args.output)
