"""attention --workdir W "The cat sat." --output PAGE.html: attention weights of texts.

Writes one HTML page that needs no network, and on request images (docs/inside.md).
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from data.store.atomic import write_atomically
from pretrain.distributed import processes
from pretrain.extras import how_to_install
from pretrain.inference.text_records import check_records, read_texts
from pretrain.reporting.fonts import describe_missing

if TYPE_CHECKING:
    from models.config import ModelConfig
    from pretrain.inference.attention_maps import Panel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `attention` to a parser."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts to show; or give --input")
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    parser.add_argument(
        "--step", type=int, help="step of the checkpoint (default: the newest intact one)"
    )
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="file with one text per line, or a .jsonl, .tsv or .csv file with a column `text` "
        "and, for an encoder-decoder, an optional column `target`",
    )
    parser.add_argument("--output", required=True, metavar="PAGE", help="new .html file")
    parser.add_argument(
        "--layers",
        type=int,
        nargs="+",
        action="extend",
        metavar="N",
        help="layers to show, counted from 1 (default: all)",
    )
    parser.add_argument(
        "--heads",
        type=int,
        nargs="+",
        action="extend",
        metavar="H",
        help="heads to draw in the images, counted from 1 (default: all)",
    )
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        help="also write one PNG per text and layer, with all its heads, to FOLDER",
    )
    parser.add_argument(
        "--length",
        type=int,
        default=64,
        metavar="T",
        help="maximum number of tokens that an encoder-decoder generates for a text without a "
        "target (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace PAGE, and images of the same names"
    )
    processes.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compute the attention weights and write the page and the images; return 0."""
    output = check_arguments(args)
    given = ((f"text {n}", {"text": text}) for n, text in enumerate(args.texts, 1))
    records = check_records(given) if args.texts else read_texts(args.input, "target")
    texts = [(place, record["text"], record.get("target")) for place, record in records]
    processes.join_run(args)
    import jax

    from pretrain.inference.attention_maps import compute_attention_maps, make_page_data
    from pretrain.inference.trained import get_attention_config, open_placed
    from pretrain.reporting.html import render_html
    from pretrain.workdir.checkpoints import read_run

    check_layers_and_heads(
        args, get_attention_config(read_run(args.workdir).model)
    )  # before parameters are read
    trained, mesh = open_placed(args.workdir, args.step)
    with jax.set_mesh(mesh):
        panels = compute_attention_maps(trained, mesh, texts, args.length)
    if jax.process_index():
        return 0
    model_name = type(trained.run.model).__name__.removesuffix("Config")
    title = f"{model_name}, step {trained.step:,} of {pathlib.Path(args.workdir).name}"
    text = render_html("attention", make_page_data(title, texts, panels, args.layers))
    write_atomically(output, text)
    print(f"{output}: {len(texts):,} texts, {len(text.encode()) / 1e6:,.1f} MB")
    missing: set[str] = set()
    for path, letters in write_images(args, panels):
        print(f"wrote {path}")
        missing.update(letters)
    if missing:
        print(describe_missing(sorted(missing)), file=sys.stderr)
    return 0


def check_arguments(args: argparse.Namespace) -> pathlib.Path:
    """Return the path of the page, and check the arguments before anything is read.

    Raises:
      ValueError: for arguments that contradict each other or are out of range.
      FileExistsError: if the page exists and --overwrite is not given.
      FileNotFoundError: if the folder of the page does not exist.
    """
    if bool(args.texts) == bool(args.input):
        raise ValueError('give either texts ("The cat sat.") or --input FILE')
    output = pathlib.Path(args.output)
    if output.suffix != ".html":
        raise ValueError(f"--output {output}: the name must end in .html")
    if output.exists() and not args.overwrite:
        raise FileExistsError(f"{output} exists; name another --output, or add --overwrite")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: the folder of --output does not exist")
    if args.length < 2:
        raise ValueError(f"--length {args.length}: must be at least 2")
    if args.heads and not args.images:
        raise ValueError("--heads needs --images FOLDER; the page always shows all heads")
    if args.images:
        import importlib.util

        if not importlib.util.find_spec("matplotlib"):
            raise ValueError(f"--images needs matplotlib: {how_to_install('report')}")
    return output


def check_layers_and_heads(args: argparse.Namespace, model: ModelConfig) -> None:
    """Raise ValueError unless the model has the layers of --layers and the heads of --heads."""
    if not model.has_attention:
        raise ValueError(
            f"a {type(model).__name__} has no attention. `features` has the hidden states of its "
            "layers"
        )
    depth = min(model.depth, getattr(model, "decoder_depth", model.depth))
    for name, numbers, most in (
        ("layers", args.layers, depth),
        ("heads", args.heads, model.num_heads),
    ):
        if wrong := [number for number in numbers or () if not 1 <= number <= most]:
            raise ValueError(f"--{name} {wrong[0]}: the model has {name} 1 to {most}")


def write_images(
    args: argparse.Namespace, panels: Sequence[Sequence[Panel]]
) -> Iterator[tuple[pathlib.Path, list[str]]]:
    """Write one image per text, panel and layer; yield its path and its letters without a font.

    Raises:
      FileExistsError: if an image exists and --overwrite is not given.
    """
    if not args.images:
        return
    from pretrain.inference.attention_pictures import draw_panel

    folder = pathlib.Path(args.images)
    folder.mkdir(parents=True, exist_ok=True)
    for number, text_panels in enumerate(panels, 1):
        for panel in text_panels:
            for layer in args.layers or range(1, len(panel.weights_NHLM) + 1):
                path = folder / f"text_{number}_{panel.name}_layer_{layer}.png"
                if path.exists() and not args.overwrite:
                    raise FileExistsError(
                        f"{path} exists; name another --images, or add --overwrite"
                    )
                heads = args.heads or range(1, panel.weights_NHLM.shape[1] + 1)
                yield path, draw_panel(panel, layer, heads, path)
