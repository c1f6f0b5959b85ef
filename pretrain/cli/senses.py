"""senses --workdir W --word bank --input TEXT --output P.png: one word in many sentences, projected by PCA and t-SNE (docs/inside.md)."""

import importlib.util
import pathlib

from data.store.atomic import replace_file
from pretrain.distributed import processes
from pretrain.extras import how_to_install
from pretrain.inference.text_records import read_texts

LEAST = 5  # occurrences, below which there is no neighbourhood to show
NEEDS = {"matplotlib": "report", "sklearn": "metrics"}


def add_arguments(parser):
    parser.add_argument("--workdir", required=True, help="a run's folder")
    parser.add_argument(
        "--step", type=int, help="a checkpoint's step; the newest good one unless given"
    )
    parser.add_argument("--word", required=True, help="the word to look for, in either case")
    parser.add_argument(
        "--input",
        required=True,
        metavar="TEXT",
        help="a text a line, or .jsonl, .tsv, .csv with a column `text`, and `sense` for a colour",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="a new .png file")
    parser.add_argument(
        "--layer", default="last", help="as `features --layers` has it (%(default)s)"
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="B",
        help="texts computed at once (%(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    processes.add_arguments(parser)


def run(args):
    output = check(args)
    from pretrain.inference import word_senses

    texts = read_texts(args.input, "sense")
    records = [
        (place, record)
        for place, record in texts
        if word_senses.bare(args.word) in map(word_senses.bare, record["text"].split())
    ]
    enough(len(records), args, "texts with")
    processes.start(args)
    import jax

    from pretrain.inference.hidden_states import chosen, extract
    from pretrain.inference.trained import body_of, open_placed
    from pretrain.workdir.checkpoints import read_run

    picks = chosen([args.layer], body_of(read_run(args.workdir).model).depth)
    if len(picks) != 1:
        raise ValueError(f"--layer {args.layer}: name one layer, or one combination")
    trained, mesh = open_placed(args.workdir, args.step)
    texts = [(place, record["text"]) for place, record in records]
    with jax.set_mesh(mesh):
        arrays = extract(trained, mesh, texts, [args.layer], "word_mean", args.batch_size).arrays
    if jax.process_index():
        return 0
    (name,) = picks
    found = word_senses.occurrences(args.word, [text for _, text in texts], arrays, arrays[name])
    enough(len(found), args, "occurrences, within the model's length, of")
    projected = word_senses.projections(arrays[name][[one.row for one in found]])
    title = f"{args.word!r}, {name} of {pathlib.Path(args.workdir).name}, step {trained.step:,}"
    labels = [records[one.text][1].get("sense") for one in found]
    with replace_file(output) as new:
        word_senses.draw(projected, labels, [one.around for one in found], title, new)
    print(f"{output}: {len(found):,} times {args.word!r} in {len(records):,} texts")
    return 0


def check(args):
    """The picture's path. Raises ValueError or FileExistsError for words that cannot be meant, before anything is read."""
    output = pathlib.Path(args.output)
    if output.suffix != ".png":
        raise ValueError(f"--output {output}: a name that ends in .png")
    if output.exists() and not args.overwrite:
        raise FileExistsError(f"{output} exists; name another --output, or add --overwrite")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: no such folder for --output")
    if len(args.word.split()) != 1 or not any(sign.isalnum() for sign in args.word):
        raise ValueError(f"--word {args.word!r}: one word, without white space")
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}: at least 1")
    for module, extra in NEEDS.items():
        if not importlib.util.find_spec(module):
            raise ValueError(
                f"senses needs {'scikit-learn' if module == 'sklearn' else module}: {how_to_install(extra)}"
            )
    return output


def enough(count, args, what):
    if count < LEAST:
        raise ValueError(
            f"{args.input}: {count} {what} {args.word!r}; a picture needs {LEAST} at least"
        )
