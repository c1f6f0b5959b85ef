"""export --workdir W --output FOLDER: a checkpoint as a folder that `transformers` opens.

With --format jax it is a folder that JAX opens without Cloze.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pretrain.inference import random_head

if TYPE_CHECKING:
    from pretrain.publish.export import Exported, ExportOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export` to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="new folder on this machine"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an earlier export in FOLDER"
    )
    add_options(parser)


def add_options(parser: argparse._ActionsContainer) -> None:
    """Add the arguments that say what is exported of a run."""
    parser.add_argument(
        "--step", type=int, help="step of the checkpoint (default: the newest intact one)"
    )
    parser.add_argument(
        "--allow-nonfinite",
        action="store_true",
        help="export weights that contain NaN or infinite values (default: an error)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="dtype of the exported weights; training keeps them in float32, the 16-bit dtypes "
        "round them to 8 or 11 significant bits (default: %(default)s)",
    )
    parser.add_argument(
        "--format",
        choices=("transformers", "jax"),
        default="transformers",
        help="transformers: safetensors, config.json and tokenizer files; jax: an Orbax "
        "checkpoint, the model's code with a loader, and a jax.export program "
        "(default: %(default)s)",
    )
    random_head.add_argument(parser)


def read_options(args: argparse.Namespace) -> ExportOptions:
    """Return the options of an export that parsed arguments name."""
    from pretrain.publish.export import ExportOptions

    return ExportOptions(
        step=args.step,
        format=args.format,
        dtype=args.dtype,
        allow_nonfinite=args.allow_nonfinite,
        allow_random_head=args.allow_random_head,
    )


def run(args: argparse.Namespace) -> int:
    """Write the folder and print its files; return 0."""
    import dataclasses

    from pretrain.publish.export import export_run

    options = dataclasses.replace(read_options(args), overwrite=args.overwrite)
    exported = export_run(args.workdir, args.output, options)
    print(f"{args.output}: step {exported.trained.step:,} of {args.workdir}")
    print("\n".join(list_file_lines(exported, args.format)))
    if args.format == "jax":
        print(f"to load it, see {args.output}/README.md")
        return 0
    from pretrain.publish.cards.model_card import make_loading_lines
    from pretrain.publish.lost_rates import list_lost_rates

    trained = exported.trained
    for line in list_lost_rates(trained.run.model, trained.encoding):
        print(line)
    code = make_loading_lines(trained.run, trained.encoding, args.output)
    print("\n".join(["load it with", *(f"  {line}" for line in code)]))
    return 0


def list_file_lines(exported: Exported, format: str) -> list[str]:
    """Return a line for each file of an export, and one for all files of params/."""
    hidden = ("params/", "models/") if format == "jax" else ()
    sizes = {name: size for name, size in exported.files.items() if not name.startswith(hidden)}
    if format == "jax":
        sizes["params/"] = sum(
            size for name, size in exported.files.items() if name.startswith("params/")
        )
    return [f"  {name:<34}{size:>15,} bytes" for name, size in sizes.items()]
