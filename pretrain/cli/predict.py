"""predict --workdir W "The capital of France is [MASK].": what a checkpoint puts into the gaps of a text.

BERT gives each [MASK] its likeliest words; T5 writes what stands for each <extra_id_i>; GPT continues the text; the Transformer
translates it; BART writes the whole of a damaged one; ELECTRA gives each [MASK] its generator's words, and tells of a text without any how
likely each word is not the one that stood there; a fine-tuned model tells the label of a text or a pair, the tags of words, the right one of
some choices, or the answer to a question; one that writes gives the answer as text. Texts are cut into ids by the tokenizer
that `export` writes, so the answers are those of the exported model.

B batch   L row length   P masks of a row   K answers   M input length   T output length
"""

import contextlib
import json
import sys
from typing import Any

from pretrain.finetune.answering import answerer, reader, speller
from pretrain.inference import random_head
from pretrain.inference.line_files import sink
from pretrain.inference.record_files import asks, readers_of, records_of

CHUNK = 4096  # lines of an input file that are held at once


def add_arguments(parser):
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="with [MASK] or <extra_id_0> ... in it, or to be continued, translated or mended: what the model was trained for",
    )
    parser.add_argument("--workdir", required=True, help="a run's folder")
    parser.add_argument(
        "--step", type=int, help="a checkpoint's step; the newest good one unless given"
    )
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="a text a line, or .jsonl, .tsv, .csv with a column `text`; of a fine-tuned model what `finetune` reads",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write JSON lines there instead of printing; of questions and FILE.json {id: answer}",
    )
    parser.add_argument("--top", type=int, metavar="K", help="answers for each [MASK] (5)")
    parser.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="of answers to questions: tell the N best, with their probabilities",
    )
    parser.add_argument(
        "--length",
        type=int,
        metavar="T",
        help="the most tokens that a model writes (64)",
    )
    _add_decoding_arguments(parser)
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="B",
        help="texts computed at once (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    random_head.add_argument(parser)


def _add_decoding_arguments(parser):
    """How a model that writes chooses its tokens."""
    parser.add_argument(
        "--beams",
        type=int,
        metavar="W",
        help="search for the likeliest text with W beams, instead of the likeliest word at each step",
    )
    parser.add_argument(
        "--length-penalty",
        type=float,
        metavar="A",
        help="of --beams: above 0 for longer texts, below for shorter ones (1)",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="draw the words, below 1 mostly the likely ones, above 1 others too (1)",
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="draw the words, of the K likeliest")
    parser.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help="draw the words, of the fewest that have a share of P",
    )
    parser.add_argument(
        "--no-repeat-ngram",
        type=int,
        metavar="N",
        help="write no N tokens that stood there in that order before",
    )
    parser.add_argument("--seed", type=int, help="of what is drawn (0)")


def run(args):
    if bool(args.texts) == bool(args.input):
        raise ValueError('give either texts ("The capital of France is [MASK].") or --input FILE')
    for name in ("top", "n_best", "length", "batch_size", "beams", "top_k", "no_repeat_ngram"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise ValueError(f"{_option(name)} {value}: at least 1")
    how = decoding(args)
    from pretrain.inference.batching import watched
    from pretrain.inference.progress import Progress
    from pretrain.inference.trained import open_trained

    trained = open_trained(
        args.workdir, args.step, report=lambda text: print(text, file=sys.stderr)
    )
    random_head.check_head(trained, "predict", args.allow_random_head, sentence_heads=False)
    read, readers = reader(trained), readers_of(trained.run)
    answer = answerer(
        trained,
        top=args.top,
        n_best=args.n_best,
        length=args.length,
        batch_size=args.batch_size,
        **how,
    )

    def records():
        return (
            ((None, {"text": text}) for text in args.texts)
            if args.texts
            else records_of(args.input, readers)
        )

    by_id = str(args.output or "").endswith(".json") and asks(trained.run.data.objective)
    if by_id:
        check_ids(records(), args.output, args.n_best)
    done = 0
    with (
        Progress(lambda: sum(1 for _ in records())) as progress,
        teller(trained, args.output, args.json, by_id) as tell,
    ):
        for chunk in _chunks(records(), CHUNK):
            texts = [read(record, place) for place, record in chunk]
            with watched(
                lambda share, done=done, chunk=chunk: (
                    progress.show(done + share * len(chunk)) if share < 1 else progress.hide()
                )
            ):
                results = answer(texts, [place for place, _ in chunk], done)
            for (_, record), text, result in zip(chunk, texts, results, strict=True):
                tell(record, text, result)
                done += 1
        if not done:
            raise ValueError(f"{args.input}: no texts in it")
    if args.output:
        print(f"{args.output}: {done:,} texts, step {trained.step:,} of {args.workdir}")
    return 0


def decoding(args):
    """How to write, as keywords of `answerer`: what the command line says, and nothing where it does not."""
    drawn = {
        name: value
        for name in ("temperature", "top_k", "top_p")
        if (value := getattr(args, name)) is not None
    }
    if drawn and args.beams is not None:
        raise ValueError(
            f"--beams searches for the likeliest text, {_option(*drawn)} draws one: give one or the other"
        )
    if args.length_penalty is not None and args.beams is None:
        raise ValueError("--length-penalty is for --beams")
    if args.seed is not None and not drawn:
        raise ValueError(
            "--seed is for words that are drawn: give --temperature, --top-k or --top-p as well"
        )
    how: dict[str, Any] = {
        name: value
        for name in ("no_repeat_ngram", "seed")
        if (value := getattr(args, name)) is not None
    }
    if drawn:
        from models.generation.generate import Sample

        how["strategy"] = Sample(**drawn)
    elif args.beams is not None:
        from models.generation.generate import Beam

        penalty = {} if args.length_penalty is None else {"length_penalty": args.length_penalty}
        how["strategy"] = Beam(args.beams, **penalty)
    return how


def _option(name, *_):
    return f"--{name.replace('_', '-')}"


# ---- what goes in and out ----------------------------------------------------


@contextlib.contextmanager
def teller(trained, output, as_json, by_id):
    """A function (record, text, result) that prints a result, or writes it to the file `output`, which appears when all are written.

    JSON lines have the fields of the record too, those that the result has as well as `given_...`. by_id: the file is {id: answer}, as SQuAD's
    scripts read it.
    """
    show, answers = speller(trained), {}
    with sink(output) as write:

        def spoken(record, text, result):
            record = {
                f"given_{name}" if name in result else name: value for name, value in record.items()
            }
            write(
                json.dumps(record | result, ensure_ascii=False)
                if as_json or output
                else show(text, result)
            )

        def kept(record, text, result):
            answers[str(record["id"])] = result["answer"]

        yield kept if by_id else spoken
        if by_id:
            write(json.dumps(answers, ensure_ascii=False))


def check_ids(records, output, n_best):
    """Raise ValueError unless each record has an id of its own and one answer is asked for."""
    if n_best is not None:
        raise ValueError(
            f"--output {output} has one answer to each question: with --n-best name a file that ends in .jsonl"
        )
    seen = set()
    for place, record in records:
        place, name = place or "the command line", record.get("id")
        if name is None:
            raise ValueError(
                f"{place}: no `id`, by which {output} has its answer; an --output that ends in .jsonl needs none"
            )
        if str(name) in seen:
            raise ValueError(
                f"{place}: the id {name!r} stands there twice; {output} has one answer for each"
            )
        seen.add(str(name))


def _chunks(items, size):
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
