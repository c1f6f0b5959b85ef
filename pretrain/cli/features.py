"""features --workdir W --input TEXT --layers last --output F.npz: hidden states of texts.

They are written as arrays (docs/inside.md).
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from data.corpus.json_lines import format_json
from data.store.atomic import replace_file
from pretrain.cli.output_file import check_output_file
from pretrain.inference.pooling import POOLINGS
from pretrain.inference.random_head import add_checkpoint_arguments, name_parameters
from pretrain.inference.text_records import read_texts
from pretrain.processes import processes

SUFFIXES = (".npz", ".safetensors")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `features` to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    add_checkpoint_arguments(parser)
    parser.add_argument(
        "--input",
        required=True,
        metavar="TEXT",
        help="file with one text per line, or a .jsonl, .tsv or .csv file with a column `text`",
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="new .npz or .safetensors file"
    )
    parser.add_argument(
        "--layers",
        nargs="+",
        action="extend",
        metavar="LAYER",
        help="embeddings, second_to_last, last, sum_last_four, concat_last_four, sum_all, all, or "
        "numbers: 0 is the embeddings, -1 the last layer (default: last)",
    )
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        default="mean",
        help="one vector per text (cls; mean: of its tokens; mean_all: of these and the special "
        "ones), per word (word: of its first token, word_mean), or "
        "per token (none) (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="B",
        help="texts per batch (default: %(default)s)",
    )
    parser.add_argument(
        "--both-strands",
        action="store_true",
        help="DNA: the mean of the vectors of a text and its reverse complement",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    processes.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compute the hidden states, write them and print the shapes; return 0."""
    output, layers = check_arguments(args), args.layers or ["last"]
    if args.both_strands:
        from pretrain.inference.vectors.strand_features import check_pooling

        check_pooling(args.pooling)
    texts = [(place, record["text"]) for place, record in read_texts(args.input)]
    processes.join_run(args)
    import jax

    from pretrain.inference.hidden_states import extract_features, select_combinations
    from pretrain.inference.vectors.strand_features import extract_strand_features
    from pretrain.workdir.trained import get_attention_config, open_placed
    from pretrain.workdir.workdir import Workdir

    select_combinations(
        layers, get_attention_config(Workdir.open(args.workdir).run.model).depth
    )  # before parameters are read
    trained, mesh = open_placed(args.workdir, args.step, args.parameters)
    with jax.set_mesh(mesh):
        extract = extract_strand_features if args.both_strands else extract_features
        features = extract(trained, mesh, texts, layers, args.pooling, args.batch_size)
    if jax.process_index():
        return 0
    metadata = {
        "workdir": str(args.workdir),
        "step": trained.step,
        "parameters": trained.parameters,
        "input": str(args.input),
        "layers": layers,
        "pooling": args.pooling,
        **({"both_strands": True} if args.both_strands else {}),
        "model": type(trained.run.model).__name__,
    }
    write_arrays(output, features.arrays, metadata)
    named = name_parameters(trained.step, args.parameters)
    print(f"{output}: {features.num_texts:,} texts, {named} of {args.workdir}")
    for name, array in features.arrays.items():
        print(f"  {name:<18}{array.dtype!s:<9}{list(array.shape)}")
    if features.num_cut:
        first = next(place for (place, _), cut in zip(texts, features.arrays["cut"]) if cut)
        longest = trained.run.model.length
        print(
            f"{features.num_cut:,} texts are longer than the model's {longest} tokens and were "
            f"truncated, the first at {first}; the array `cut` marks them"
        )
    if features.num_empty:
        print(f"{features.num_empty:,} words have no token; their vectors are NaN")
    return 0


def check_arguments(args: argparse.Namespace) -> pathlib.Path:
    """Return the path of the output, and check the arguments before anything is read.

    Raises:
      ValueError: for arguments that are out of range.
      FileExistsError: if the output exists and --overwrite is not given.
      FileNotFoundError: if the folder of the output does not exist.
    """
    output = pathlib.Path(args.output)
    if output.suffix not in SUFFIXES:
        raise ValueError(f"--output {output}: the name must end in {' or '.join(SUFFIXES)}")
    check_output_file(output, args.overwrite, [args.input])
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: the folder of --output does not exist")
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}: must be at least 1")
    return output


def write_arrays(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]
) -> None:
    """Write arrays to a file atomically.

    Args:
      path: a .npz or .safetensors file.
      about: written as JSON, in the array `about` of a .npz file or in the metadata of a
        .safetensors file.
    """
    from safetensors.numpy import save

    with replace_file(path) as new:
        if path.suffix == ".npz":
            contents: dict[str, Any] = {**arrays, "about": np.array(format_json(about))}
            np.savez(new, **contents)
        else:
            new.write_bytes(save({**arrays}, metadata={"about": format_json(about)}))
