"""export --workdir W --output FOLDER: a checkpoint as a folder that `transformers` opens.

With --format jax it is a folder that JAX opens without Cloze.
"""

from __future__ import annotations

import argparse
from typing import Any

from pretrain.inference import random_head


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export` to a parser."""
    parser.add_argument("--workdir", required=True, help="workdir of a run")
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="new folder on this machine"
    )
    parser.add_argument(
        "--step", type=int, help="step of the checkpoint (default: the newest intact one)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an earlier export in FOLDER"
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


def run(args: argparse.Namespace) -> int:
    """Write the folder and print its files; return 0."""
    if args.format == "jax":
        return run_jax(args)
    from pretrain.convert import find_model_family, model_card
    from pretrain.convert.export_folder import check_output
    from pretrain.convert.read_write import write_model
    from pretrain.inference.trained import open_trained

    check_output(args.output, args.overwrite)  # before the parameters are read, which takes minutes
    trained = open_trained(args.workdir, args.step)
    find_model_family(trained.run.model).require_hugging_face()
    random_head.check_head(trained, "export", args.allow_random_head)
    files = write_model(
        args.output,
        trained.run.model,
        trained.params,
        trained.encoding,
        card=model_card.make_card(trained, args.dtype),
        overwrite=args.overwrite,
        allow_nonfinite=args.allow_nonfinite,
        dtype=args.dtype,
        **list_image_options(trained),
    )
    print(f"{args.output}: step {trained.step:,} of {args.workdir}")
    for name, size in files.items():
        print(f"  {name:<34}{size:>15,} bytes")
    code = model_card.make_loading_lines(trained.run, trained.encoding, args.output)
    print("\n".join(["load it with", *(f"  {line}" for line in code)]))
    return 0


def list_image_options(trained: Any) -> dict[str, float]:
    """Return the options of an export that a model of images has: how they are cropped."""
    objective = trained.run.data.objective
    return {"crop_ratio": objective.crop_ratio} if hasattr(objective, "crop_ratio") else {}


def run_jax(args: argparse.Namespace) -> int:
    """Write the folder that pretrain/convert/jax_folder.py describes; return 0."""
    from models import build
    from pretrain.convert.export_folder import check_output
    from pretrain.convert.jax_folder import write_jax_folder
    from pretrain.inference.trained import open_trained
    from pretrain.training.state import make_dummy_inputs

    check_output(args.output, args.overwrite)
    trained = open_trained(args.workdir, args.step)
    random_head.check_head(trained, "export", args.allow_random_head)
    config = trained.run.model
    files = write_jax_folder(
        args.output,
        config,
        trained.params,
        trained.encoding,
        make_dummy_inputs(build(config), trained.run.data.objective, 1),
        overwrite=args.overwrite,
        allow_nonfinite=args.allow_nonfinite,
        dtype=args.dtype,
        **list_image_options(trained),
    )
    print(f"{args.output}: step {trained.step:,} of {args.workdir}")
    for name, size in files.items():
        if not name.startswith(("params/", "models/")):
            print(f"  {name:<34}{size:>15,} bytes")
    params_size = sum(size for name, size in files.items() if name.startswith("params/"))
    print(f"  {'params/':<34}{params_size:>15,} bytes")
    print(f"to load it, see {args.output}/README.md")
    return 0
