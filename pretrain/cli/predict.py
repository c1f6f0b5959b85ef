"""predict --workdir W "The capital of France is [MASK].": the answers of a checkpoint to texts.

The answer depends on the model. BERT predicts the tokens of each [MASK], T5 the text of each
<extra_id_i>, GPT a continuation, the Transformer a translation, BART the repaired text. ELECTRA
predicts each [MASK] with its generator and, in a text without one, the probability that each word
was replaced. A model of articles reads fields as a JSON object and generates another one. A
fine-tuned model predicts the label of a text or pair, the tags of words, one of several choices, or
the answer to a question; a generative one writes it as text. Texts are tokenized by the tokenizer
that `export` writes, so the exported model answers alike.

B batch   L row length   P masks of a row   K answers   M input length   T output length
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from data.corpus.json_lines import format_json
from data.examples.file_formats import FORMATS
from pretrain.api.predicting import PredictOptions, Predictor, PredictorOptions
from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.host.terminal import print_notice
from pretrain.inference import record_files
from pretrain.inference.answering import make_blank_result, make_formatter
from pretrain.inference.random_head import name_parameters
from pretrain.inference.unknown_share import UnknownCounter
from pretrain.settings.verb_options import add_options, read_options

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

CHUNK = 4096  # records of an input file that are in memory at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `predict` to a parser."""
    add_options(parser, PredictOptions)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--input",
        metavar="FILE",
        help="one text per line, or a .jsonl, .tsv or .csv file with a column `text`; for a "
        "fine-tuned model, any file that `finetune` reads; of images, their folder",
    )
    files.add_argument(
        "--as",
        dest="file_format",
        choices=FORMATS,
        help="format of --input, whatever its name (default: the end of the name decides)",
    )
    files.add_argument(
        "--output",
        metavar="FILE",
        help="write JSON lines to FILE instead of printing; for questions, FILE.json becomes "
        "{id: answer}",
    )
    files.add_argument(
        "--picture",
        metavar="FILE",
        help="draw as a .png file in which order a diffusion model filled the masks of one text",
    )
    add_overwrite(files, "FILE of --output and --picture")
    files.add_argument("--json", action="store_true", help="print JSON lines")


def run(args: argparse.Namespace) -> int:
    """Answer all texts and print or write the answers; return 0."""
    if bool(args.texts) == bool(args.input):
        raise ValueError('give either texts ("The capital of France is [MASK].") or --input FILE')
    if args.output:
        check_output_file(args.output, args.overwrite, [args.input, *args.texts])
    if args.file_format and not args.input:
        raise ValueError(f"--as {args.file_format} needs --input FILE")
    check_picture(args)
    from pretrain.inference.batching import report_progress
    from pretrain.inference.progress import Progress

    predictor = Predictor(**vars(read_options(PredictorOptions, args)))
    trained = predictor.trained
    blank = make_blank_result(trained)
    readers = record_files.make_readers(trained.run)

    def read_records() -> Iterable[tuple[str | None, dict[str, Any]]]:
        if args.texts:
            return ((None, {"text": text}) for text in args.texts)
        return record_files.iterate_records(args.input, readers, args.file_format)

    by_id = str(args.output or "").endswith(".json") and record_files.is_question_answering(
        trained.run.data.objective
    )
    if by_id:
        check_ids(read_records(), args.output, args.n_best)
    count = asked = 0
    unknown = UnknownCounter(trained.encoding)
    with (
        Progress(lambda: sum(1 for _ in read_records()), trained.noun) as progress,
        open_result_writer(trained, args.output, args.json, by_id) as write_result,
    ):
        for chunk in _split_chunks(read_records(), CHUNK):
            given = [each for each in chunk if each[1] is not record_files.BLANK_LINE]
            texts = [predictor.read_record(record, place) for place, record in given]
            unknown.add_texts(texts)
            with report_progress(
                lambda share, count=count, chunk=chunk: (
                    progress.show(count + share * len(chunk)) if share < 1 else progress.hide()
                )
            ):
                places = [place for place, _ in given]
                results = predictor.answer(texts, places, asked) if given else []
            answers = zip(texts, results, strict=True)
            for _, record in chunk:
                is_blank = record is record_files.BLANK_LINE
                write_result(record, *((None, blank) if is_blank else next(answers)))
            count, asked = count + len(chunk), asked + len(given)
        if not asked:
            raise ValueError(f"{args.input}: contains no {trained.noun}")
    for line in unknown.describe():
        print_notice(line)
    if args.picture:
        draw_picture(args, results[0], name_parameters(trained.step, args.parameters))
    if args.output:
        named = name_parameters(trained.step, args.parameters)
        print(f"{args.output}: {count:,} {trained.noun}, {named} of {args.workdir}")
    return 0


# ---- input and output --------------------------------------------------------


def check_picture(args: argparse.Namespace) -> None:
    """Raise ValueError, or FileExistsError, unless --picture can be drawn; without it, return."""
    if not args.picture:
        return
    if not str(args.picture).endswith(".png"):
        raise ValueError(f"--picture {args.picture}: the name must end in .png")
    if len(args.texts) != 1:
        raise ValueError("--picture draws one text: give it on the command line")
    check_output_file(args.picture, args.overwrite, [args.output, *args.texts], "--picture")


def draw_picture(args: argparse.Namespace, result: Mapping[str, Any], named: str) -> None:
    """Write the picture of a filled text; named: the checkpoint."""
    from pretrain.api.pictures import draw_filling

    draw_filling(result, f"{pathlib.Path(args.workdir).name}, {named}").save(args.picture)
    print(args.picture)


@contextlib.contextmanager
def open_result_writer(
    trained: Trained, output: str | None, as_json: bool, by_id: bool
) -> Iterator[Callable[[dict[str, Any], Any, dict[str, Any]], None]]:
    """Yield a function (record, text, result) that prints or writes a result.

    The text of a blank line is None.

    Args:
      trained: the checkpoint.
      output: a file, which appears when all results are written; None prints them.
      as_json: print JSON lines. They also contain the fields of the record, renamed to `given_...`
        where the result has the same field.
      by_id: write one JSON object {id: answer}, as the evaluation scripts of SQuAD read it.
    """
    show, answers = make_formatter(trained), {}
    with record_files.open_line_writer(output) as write:

        def write_result(record: dict[str, Any], text: Any, result: dict[str, Any]) -> None:
            record = {
                f"given_{name}" if name in result else name: value for name, value in record.items()
            }
            write(
                format_json(record | result, ensure_ascii=False)
                if as_json or output
                else ""
                if text is None
                else show(text, result)
            )

        def collect_answer(record: dict[str, Any], text: Any, result: dict[str, Any]) -> None:
            answers[str(record["id"])] = result["answer"]

        yield collect_answer if by_id else write_result
        if by_id:
            write(format_json(answers, ensure_ascii=False))


def check_ids(
    records: Iterable[tuple[str | None, Mapping[str, Any]]], output: str, n_best: int | None
) -> None:
    """Raise ValueError unless each record has a unique id and one answer is requested."""
    if n_best is not None:
        raise ValueError(
            f"--output {output} has one answer per question; for --n-best, name a file that ends "
            "in .jsonl"
        )
    seen = set()
    for place, record in records:
        place, name = place or "the command line", record.get("id")
        if name is None:
            raise ValueError(
                f"{place}: has no `id`, which {output} needs; an --output that ends in .jsonl "
                "does not"
            )
        if str(name) in seen:
            raise ValueError(
                f"{place}: the id {name!r} occurs twice; {output} has one answer per id"
            )
        seen.add(str(name))


def _split_chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of `size` items, the last of which may be shorter."""
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
