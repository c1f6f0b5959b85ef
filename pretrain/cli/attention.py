"""attention --workdir W "The cat sat." --output PAGE.html: who reads whom, as one page that needs no network, and as pictures (docs/inside.md)."""

import pathlib

from data.store.atomic import write_atomically
from pretrain.distributed import processes
from pretrain.extras import how_to_install
from pretrain.inference.text_records import checked, read_texts


def add_arguments(parser):
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--workdir", required=True, help="a run's folder")
    parser.add_argument(
        "--step", type=int, help="a checkpoint's step; the newest good one unless given"
    )
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="a text a line, or .jsonl, .tsv, .csv with a column `text`, and `target` for an encoder-decoder",
    )
    parser.add_argument("--output", required=True, metavar="PAGE", help="a new .html file")
    parser.add_argument(
        "--layers",
        type=int,
        nargs="+",
        action="extend",
        metavar="N",
        help="from 1; all unless given",
    )
    parser.add_argument(
        "--heads",
        type=int,
        nargs="+",
        action="extend",
        metavar="H",
        help="of the pictures, from 1; all unless given",
    )
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        help="also write a PNG for each text and layer, with its heads, into FOLDER",
    )
    parser.add_argument(
        "--length",
        type=int,
        default=64,
        metavar="T",
        help="the most tokens that an encoder-decoder writes without a target (%(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace PAGE, and pictures of the same names"
    )
    processes.add_arguments(parser)


def run(args):
    output = check(args)
    given = ((f"text {n}", {"text": text}) for n, text in enumerate(args.texts, 1))
    records = checked(given) if args.texts else read_texts(args.input, "target")
    texts = [(place, record["text"], record.get("target")) for place, record in records]
    processes.start(args)
    import jax

    from pretrain.inference.attention_maps import as_data, attention_maps
    from pretrain.inference.trained import body_of, open_placed
    from pretrain.reporting.html import render_html
    from pretrain.workdir.checkpoints import read_run

    check_numbers(args, body_of(read_run(args.workdir).model))  # before parameters are read
    trained, mesh = open_placed(args.workdir, args.step)
    with jax.set_mesh(mesh):
        panels = attention_maps(trained, mesh, texts, args.length)
    if jax.process_index():
        return 0
    title = f"{type(trained.run.model).__name__.removesuffix('Config')}, step {trained.step:,} of {pathlib.Path(args.workdir).name}"
    text = render_html("attention", as_data(title, texts, panels, args.layers))
    write_atomically(output, text)
    print(f"{output}: {len(texts):,} texts, {len(text.encode()) / 1e6:,.1f} MB")
    for path in pictures(args, panels):
        print(f"wrote {path}")
    return 0


def check(args):
    """The page's path. Raises ValueError or FileExistsError for words that cannot be meant, before anything is read."""
    if bool(args.texts) == bool(args.input):
        raise ValueError('give either texts ("The cat sat.") or --input FILE')
    output = pathlib.Path(args.output)
    if output.suffix != ".html":
        raise ValueError(f"--output {output}: a name that ends in .html")
    if output.exists() and not args.overwrite:
        raise FileExistsError(f"{output} exists; name another --output, or add --overwrite")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: no such folder for --output")
    if args.length < 2:
        raise ValueError(f"--length {args.length}: at least 2")
    if args.heads and not args.images:
        raise ValueError("--heads is for the pictures of --images FOLDER; the page has all of them")
    if args.images:
        import importlib.util

        if not importlib.util.find_spec("matplotlib"):
            raise ValueError(f"--images needs matplotlib: {how_to_install('report')}")
    return output


def check_numbers(args, model):
    """The layers and heads are the model's."""
    depth = min(model.depth, getattr(model, "decoder_depth", model.depth))
    for name, numbers, most in (
        ("layers", args.layers, depth),
        ("heads", args.heads, model.num_heads),
    ):
        if wrong := [number for number in numbers or () if not 1 <= number <= most]:
            raise ValueError(f"--{name} {wrong[0]}: the model has {name} 1 to {most}")


def pictures(args, panels):
    """Write them one by one; yields their paths."""
    if not args.images:
        return
    from pretrain.inference.attention_maps import draw

    folder = pathlib.Path(args.images)
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(panels, 1):
        for panel in each:
            for layer in args.layers or range(1, len(panel.weights_NHLM) + 1):
                path = folder / f"text_{number}_{panel.name}_layer_{layer}.png"
                if path.exists() and not args.overwrite:
                    raise FileExistsError(
                        f"{path} exists; name another --images, or add --overwrite"
                    )
                draw(panel, layer, args.heads or range(1, panel.weights_NHLM.shape[1] + 1), path)
                yield path
