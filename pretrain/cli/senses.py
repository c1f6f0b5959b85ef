"""senses --workdir W --word bank --input TEXT --output P.png: one word in many sentences.

Its hidden states are projected by PCA and t-SNE and drawn as an image (docs/inside.md).
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import sys

from data.store.atomic import replace_file
from pretrain.cli.output_file import check_output_file
from pretrain.host.extras import how_to_install
from pretrain.inference.random_head import add_checkpoint_arguments
from pretrain.inference.text_records import read_texts
from pretrain.processes import processes
from pretrain.reporting.fonts import describe_missing

LEAST = 5  # occurrences that a projection needs
NEEDS = {"matplotlib": "report", "sklearn": "metrics"}  # {module: extra}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `senses` to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    add_checkpoint_arguments(parser)
    parser.add_argument("--word", required=True, help="word to look for; case is ignored")
    parser.add_argument(
        "--input",
        required=True,
        metavar="TEXT",
        help="file with one text per line, or a .jsonl, .tsv or .csv file with a column `text` "
        "and an optional column `sense`, which sets the colour",
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="new .png file")
    parser.add_argument(
        "--layer",
        default="last",
        help="layer of the hidden states, as in `features --layers` (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="B",
        help="texts per batch (default: %(default)s)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    processes.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Project the occurrences of the word and draw them; return 0."""
    output = check_arguments(args)
    from pretrain.inference import word_senses

    records = [
        (place, record)
        for place, record in read_texts(args.input, "sense")
        if word_senses.strip_marks(args.word)
        in map(word_senses.strip_marks, record["text"].split())
    ]
    check_count(len(records), args, "texts with")
    processes.join_run(args)
    import jax

    from pretrain.inference.hidden_states import extract_features, select_combinations
    from pretrain.workdir.trained import get_attention_config, open_placed
    from pretrain.workdir.workdir import Workdir

    layers = select_combinations(
        [args.layer], get_attention_config(Workdir.open(args.workdir).run.model).depth
    )
    if len(layers) != 1:
        raise ValueError(f"--layer {args.layer}: expected one layer, or one combination of layers")
    trained, mesh = open_placed(args.workdir, args.step, args.parameters)
    texts = [(place, record["text"]) for place, record in records]
    with jax.set_mesh(mesh):
        arrays = extract_features(
            trained, mesh, texts, [args.layer], "word_mean", args.batch_size
        ).arrays
    if jax.process_index():
        return 0
    (name,) = layers
    found = word_senses.find_occurrences(
        args.word, [text for _, text in texts], arrays, arrays[name]
    )
    check_count(len(found), args, "occurrences within the model's length of")
    projected = word_senses.project_vectors(arrays[name][[occurrence.row for occurrence in found]])
    title = f"{args.word!r}, {name} of {pathlib.Path(args.workdir).name}, step {trained.step:,}"
    labels = [records[occurrence.text][1].get("sense") for occurrence in found]
    with replace_file(output) as new:
        left_out, missing = word_senses.draw_points(
            projected, labels, [occurrence.around for occurrence in found], title, new
        )
    if left_out:
        print(f"{left_out} labels found no room and are left out")
    if missing:
        print(describe_missing(missing), file=sys.stderr)
    print(f"{output}: {len(found):,} occurrences of {args.word!r} in {len(records):,} texts")
    return 0


def check_arguments(args: argparse.Namespace) -> pathlib.Path:
    """Return the path of the image, and check the arguments before anything is read.

    Raises:
      ValueError: for arguments that are out of range, or a missing library.
      FileExistsError: if the image exists and --overwrite is not given.
      FileNotFoundError: if the folder of the image does not exist.
    """
    output = pathlib.Path(args.output)
    if output.suffix != ".png":
        raise ValueError(f"--output {output}: the name must end in .png")
    check_output_file(output, args.overwrite, [args.input])
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: the folder of --output does not exist")
    if len(args.word.split()) != 1 or not any(sign.isalnum() for sign in args.word):
        raise ValueError(f"--word {args.word!r}: expected one word, without white space")
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}: must be at least 1")
    for module, extra in NEEDS.items():
        if not importlib.util.find_spec(module):
            library = "scikit-learn" if module == "sklearn" else module
            raise ValueError(f"senses needs {library}: {how_to_install(extra)}")
    return output


def check_count(count: int, args: argparse.Namespace, what: str) -> None:
    """Raise ValueError if there are fewer than LEAST texts or occurrences of the word."""
    if count < LEAST:
        raise ValueError(
            f"{args.input}: {count} {what} {args.word!r}; a projection needs at least {LEAST}"
        )
