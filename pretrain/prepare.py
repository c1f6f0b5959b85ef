"""The verb `prepare`: text to a token store."""

SOURCES = """builtin (English from this Python's own library, needs no download), a .txt or .jsonl file (also .gz), a folder
or "pattern" of such files, tfds:NAME[/CONFIG][:SPLIT], or gs://... of any of the file forms; several make a mixture"""


def add_arguments(parser):
    """The command line of `prepare`."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help=SOURCES)
    parser.add_argument("--output", required=True, metavar="STORE", help="folder for the store, on this machine")
    text = parser.add_argument_group("text")
    text.add_argument("--document", choices=("file", "block", "record"), default="file", help="what is a document in .txt files: the whole file (default), a block between blank lines, or a line")  # fmt: skip
    text.add_argument(
        "--field", default="text", help="the field of JSON records and TFDS examples with the text (default: text)"
    )
    text.add_argument("--held-out", type=float, default=0.01, metavar="SHARE", help="share of the documents for evaluation, by hash (default: 0.01)")  # fmt: skip
    mixture = parser.add_argument_group("mixture").add_mutually_exclusive_group()
    mixture.add_argument("--rates", type=_rates, metavar="R,R,...", help="how often each source is drawn, in any unit")
    mixture.add_argument("--temperature", type=float, metavar="S", help="draw source i in proportion to (its tokens)^S: 1 (default) as they are, 0.7 multilingual BERT, 0 all alike")  # fmt: skip
    words = parser.add_argument_group(
        "vocabulary", "a SentencePiece vocabulary is trained, unless --vocabulary is given"
    )
    words.add_argument("--vocabulary", metavar="PATH", help="a released one: vocab.txt, vocab.json (with merges.txt), *.model, tokenizer.json, or a folder of them")  # fmt: skip
    words.add_argument(
        "--vocab-size", type=int, metavar="N", help="ids in all, special ones and sentinels included (default: 32768)"
    )
    words.add_argument("--layout", choices=("bert", "t5"), help="special pieces: [PAD] [UNK] [CLS] [SEP] [MASK] (default), or <pad> </s> <unk> and 100 sentinels")  # fmt: skip
    words.add_argument("--algorithm", choices=("unigram", "bpe"), help="default: unigram")
    words.add_argument(
        "--lowercase", action="store_true", default=None, help="fold case (nmt_nfkc_cf instead of nmt_nfkc)"
    )
    words.add_argument("--sample-size", type=int, metavar="BYTES", help="train on at most so much text, drawn evenly (default: 10000000)")  # fmt: skip
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: all cores; the result is the same)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the store that is there")


def run(args):
    """Prepare, and print what was done."""
    from rich.console import Console

    from data.paths import is_remote
    from data.prepare import Request, prepare
    from data.summary import summary

    if is_remote(args.output):
        raise ValueError(
            f"--output {args.output}: write the store to this machine and copy it; training reads it from a bucket"
        )
    training = ("vocab_size", "layout", "algorithm", "lowercase", "sample_size")
    given = {name: getattr(args, name) for name in training if getattr(args, name) is not None}
    if args.vocabulary and given:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ValueError(f"--vocabulary names a finished vocabulary, so {options} cannot be asked for")
    if args.temperature is not None:
        given["temperature"] = args.temperature
    request = Request(
        sources=tuple(args.sources),
        vocabulary=args.vocabulary,
        held_out=args.held_out,
        document=args.document,
        field=args.field,
        rates=args.rates,
        **given,
    )
    console = Console(stderr=True)
    done = prepare(
        request, args.output, workers=args.workers, overwrite=args.overwrite, say=console.print, console=console
    )
    print("\n".join(summary(done)))
    return 0


def _rates(text):
    return tuple(float(rate) for rate in text.split(","))
