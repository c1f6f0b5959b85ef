"""features --workdir W --input TEXT --layers last --output F.npz: hidden states of a file of texts, as arrays (docs/inside.md)."""

import json
import pathlib

from data.store.atomic import replace_file
from pretrain.distributed import processes
from pretrain.inference.pooling import POOLINGS
from pretrain.inference.text_records import read_texts

SUFFIXES = (".npz", ".safetensors")


def add_arguments(parser):
    parser.add_argument("--workdir", required=True, help="a run's folder")
    parser.add_argument(
        "--step", type=int, help="a checkpoint's step; the newest good one unless given"
    )
    parser.add_argument(
        "--input",
        required=True,
        metavar="TEXT",
        help="a text a line, or .jsonl, .tsv, .csv with a column `text`",
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="a new .npz or .safetensors file"
    )
    parser.add_argument(
        "--layers",
        nargs="+",
        action="extend",
        metavar="LAYER",
        help="embeddings, second_to_last, last, sum_last_four, concat_last_four, sum_all, all, or numbers from 0 (embeddings) or from the end (last unless given)",
    )
    parser.add_argument(
        "--pooling",
        choices=POOLINGS,
        default="mean",
        help="a row for each text (cls, mean), word, or piece (none) (%(default)s)",
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
    output, layers = check(args), args.layers or ["last"]
    texts = [(place, record["text"]) for place, record in read_texts(args.input)]
    processes.start(args)
    import jax

    from pretrain.inference.hidden_states import chosen, extract
    from pretrain.inference.trained import body_of, open_placed
    from pretrain.workdir.checkpoints import read_run

    chosen(layers, body_of(read_run(args.workdir).model).depth)  # before parameters are read
    trained, mesh = open_placed(args.workdir, args.step)
    with jax.set_mesh(mesh):
        found = extract(trained, mesh, texts, layers, args.pooling, args.batch_size)
    if jax.process_index():
        return 0
    about = {
        "workdir": str(args.workdir),
        "step": trained.step,
        "input": str(args.input),
        "layers": layers,
        "pooling": args.pooling,
    }
    write(output, found.arrays, about | {"model": type(trained.run.model).__name__})
    print(f"{output}: {found.texts:,} texts, step {trained.step:,} of {args.workdir}")
    for name, array in found.arrays.items():
        print(f"  {name:<18}{array.dtype!s:<9}{list(array.shape)}")
    if found.cut:
        first = next(place for (place, _), cut in zip(texts, found.arrays["cut"]) if cut)
        longest = getattr(trained.run.model, "length", None)
        print(
            f"{found.cut:,} texts are longer than the model's {longest} tokens and were cut, the first at {first}: see `cut`"
        )
    if found.empty:
        print(f"{found.empty:,} words of which the tokenizer leaves nothing: NaN")
    return 0


def check(args):
    """The output's path. Raises ValueError or FileExistsError for words that cannot be meant, before anything is read."""
    output = pathlib.Path(args.output)
    if output.suffix not in SUFFIXES:
        raise ValueError(f"--output {output}: a name that ends in {' or '.join(SUFFIXES)}")
    if output.exists() and not args.overwrite:
        raise FileExistsError(f"{output} exists; name another --output, or add --overwrite")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: no such folder for --output")
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}: at least 1")
    return output


def write(path, arrays, about):
    """One file, whole or not at all. about: JSON, in the array `about` of a .npz, or in the metadata of a .safetensors file."""
    import numpy as np
    from safetensors.numpy import save

    with replace_file(path) as new:
        if path.suffix == ".npz":
            np.savez(new, **arrays, about=np.array(json.dumps(about)))
        else:
            new.write_bytes(save(arrays, metadata={"about": json.dumps(about)}))
