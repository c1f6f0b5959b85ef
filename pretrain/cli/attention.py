"""attention --workdir W "The cat sat." --output PAGE.html: attention weights of texts or images.

Writes one HTML page that needs no network, and on request images (docs/inside.md). A model of
images reads files instead of texts, and the page shows them under their attention
(docs/pictures.md).
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from data.corpus.paths import check_local
from data.store.atomic import write_atomically
from models.config.base import ImageConfig
from pretrain.cli.output_file import check_output_file
from pretrain.host.extras import how_to_install
from pretrain.inference.random_head import add_checkpoint_arguments
from pretrain.inference.text_records import check_records, read_texts
from pretrain.processes import processes
from pretrain.reporting.fonts import describe_missing

if TYPE_CHECKING:
    from pretrain.inference.attention_maps import Panel
    from pretrain.reporting.patch_maps import ImageMaps
    from pretrain.workdir.trained import Trained

Drawing = tuple[pathlib.Path, list[str]]  # a file, and its letters without a font
MAX_IMAGES = 100  # of a page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `attention` to a parser."""
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="texts to show, or image files; or give --input"
    )
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    add_checkpoint_arguments(parser)
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="file with one text per line, or a .jsonl, .tsv or .csv file with a column `text` "
        "and, for an encoder-decoder, an optional column `target`; of images, their folder",
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
        help="also write one PNG per text and layer, with all its heads, to FOLDER; of images, one "
        "PNG per image",
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
    processes.join_run(args)
    import jax

    from pretrain.api.pictures import check_layers_and_heads
    from pretrain.workdir.trained import get_attention_config
    from pretrain.workdir.workdir import Workdir

    model = Workdir.open(args.workdir).run.model
    # Before parameters are read.
    check_layers_and_heads(get_attention_config(model), args.layers, args.heads)
    text, count, drawings = (show_images if isinstance(model, ImageConfig) else show_texts)(args)
    if jax.process_index():
        return 0
    drawn = list(drawings)  # before the page: an image that exists is an error
    write_atomically(output, text)
    noun = "images" if isinstance(model, ImageConfig) else "texts"
    print(f"{output}: {count:,} {noun}, {len(text.encode()) / 1e6:,.1f} MB")
    missing: set[str] = set()
    for path, letters in drawn:
        print(f"wrote {path}")
        missing.update(letters)
    if missing:
        print(describe_missing(sorted(missing)), file=sys.stderr)
    return 0


def show_texts(args: argparse.Namespace) -> tuple[str, int, Iterator[Drawing]]:
    """Return the page of texts, their number, and what draws their images."""
    given = ((f"text {n}", {"text": text}) for n, text in enumerate(args.texts, 1))
    records = check_records(given) if args.texts else read_texts(args.input, "target")
    texts = [(place, record["text"], record.get("target")) for place, record in records]
    import jax

    from pretrain.inference.attention_maps import compute_attention_maps, make_page_data
    from pretrain.reporting.html import render_html
    from pretrain.workdir.trained import open_placed

    trained, mesh = open_placed(args.workdir, args.step, args.parameters)
    with jax.set_mesh(mesh):
        panels = compute_attention_maps(trained, mesh, texts, args.length)
    data = make_page_data(make_title(trained), texts, panels, args.layers)
    return render_html("attention", data), len(texts), write_images(args, panels)


def show_images(args: argparse.Namespace) -> tuple[str, int, Iterator[Drawing]]:
    """Return the page of image files, their number, and what draws their maps."""
    import jax

    from pretrain.inference.images.image_labels import list_image_files
    from pretrain.inference.images.patch_attention import compute_image_maps
    from pretrain.reporting.patch_maps import render_patch_page
    from pretrain.workdir.trained import open_placed

    paths = args.texts or [path for path, _ in list_image_files(args.input)]
    if len(paths) > MAX_IMAGES:
        raise ValueError(f"{len(paths):,} images; a page shows {MAX_IMAGES} or fewer")
    trained, mesh = open_placed(args.workdir, args.step, args.parameters)
    with jax.set_mesh(mesh):
        images = compute_image_maps(trained, mesh, paths)
    layers = args.layers or range(1, len(images[0].rollout_NGG) + 1)
    page = render_patch_page(make_title(trained), images, layers)
    return page, len(images), draw_maps(args, images, layers)


def make_title(trained: Trained) -> str:
    """Return the title of the page."""
    model_name = type(trained.run.model).__name__.removesuffix("Config")
    return f"{model_name}, step {trained.step:,} of {pathlib.Path(trained.workdir).name}"


def check_arguments(args: argparse.Namespace) -> pathlib.Path:
    """Return the path of the page, and check the arguments before anything is read.

    Raises:
      ValueError: for arguments that contradict each other or are out of range.
      FileExistsError: if the page exists and --overwrite is not given.
      FileNotFoundError: if the folder of the page does not exist.
    """
    if bool(args.texts) == bool(args.input):
        raise ValueError('give either texts ("The cat sat.") or --input FILE')
    check_local(args.output, "the page")
    output = pathlib.Path(args.output)
    if output.suffix != ".html":
        raise ValueError(f"--output {output}: the name must end in .html")
    check_output_file(output, args.overwrite, [args.input, *args.texts])
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent}: the folder of --output does not exist")
    if args.length < 2:
        raise ValueError(f"--length {args.length}: must be at least 2")
    if args.heads and not args.images:
        raise ValueError("--heads needs --images FOLDER; the page always shows all heads")
    if args.images:
        import importlib.util

        check_local(args.images, "the images", "--images")

        if not importlib.util.find_spec("matplotlib"):
            raise ValueError(f"--images needs matplotlib: {how_to_install('report')}")
    return output


def write_images(args: argparse.Namespace, panels: Sequence[Sequence[Panel]]) -> Iterator[Drawing]:
    """Write one image per text, panel and layer; yield its path and its letters without a font.

    Raises:
      FileExistsError: if an image exists and --overwrite is not given.
    """
    if not args.images:
        return
    from pretrain.inference.attention_pictures import draw_panel

    # All names are checked before the first image is written.
    shown = {
        make_path(args, f"text_{number}_{panel.name}_layer_{layer}.png"): (panel, layer)
        for number, text_panels in enumerate(panels, 1)
        for panel in text_panels
        for layer in args.layers or range(1, len(panel.weights_NHLM) + 1)
    }
    for path, (panel, layer) in shown.items():
        heads = args.heads or range(1, panel.weights_NHLM.shape[1] + 1)
        yield path, draw_panel(panel, layer, heads, path)


def draw_maps(
    args: argparse.Namespace, images: Sequence[ImageMaps], layers: Sequence[int]
) -> Iterator[Drawing]:
    """Write the maps of each image as a PNG; yield its path and its letters without a font."""
    if not args.images:
        return
    from pretrain.reporting.patch_maps import draw_image_maps

    # All names are checked before the first image is written.
    paths = [make_path(args, f"image_{number}.png") for number in range(1, len(images) + 1)]
    for path, image in zip(paths, images, strict=True):
        heads = args.heads or range(1, image.weights_NHGG.shape[1] + 1)
        yield path, draw_image_maps(image, layers, heads, path)


def make_path(args: argparse.Namespace, name: str) -> pathlib.Path:
    """Return the path of a PNG file in --images, which is made if absent."""
    path = pathlib.Path(args.images) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return check_output_file(path, args.overwrite, [args.input, *args.texts], "--images")
