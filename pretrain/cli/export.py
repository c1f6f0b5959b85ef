"""export --workdir W --output FOLDER [--format jax]: a checkpoint as a folder that `transformers` opens, or that JAX does without Cloze."""

from pretrain.inference import random_head


def add_arguments(parser):
    parser.add_argument("--workdir", required=True, help="a run's folder")
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="a new folder on this machine"
    )
    parser.add_argument(
        "--step", type=int, help="a checkpoint's step; the newest good one unless given"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an earlier export in FOLDER"
    )
    parser.add_argument(
        "--allow-nonfinite",
        action="store_true",
        help="export weights that hold NaN or infinite values, which are refused otherwise",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="of the weights, which are trained in float32: half the size, rounded to 8 or 11 bits (float32)",
    )
    parser.add_argument(
        "--format",
        choices=("transformers", "jax"),
        default="transformers",
        help="jax: parameters by Orbax, the model's own code with a loader, and a program of jax.export",
    )
    random_head.add_argument(parser)


def run(args):
    if args.format == "jax":
        return run_jax(args)
    from pretrain.convert import model_card
    from pretrain.convert.read_write import write_model
    from pretrain.convert.safe_folder import check_output
    from pretrain.inference.trained import open_trained

    check_output(args.output, args.overwrite)  # before minutes of reading
    trained = open_trained(args.workdir, args.step)
    random_head.check_head(trained, "export", args.allow_random_head)
    files = write_model(
        args.output,
        trained.run.model,
        trained.params,
        trained.vocabulary,
        card=model_card.of(trained, args.dtype),
        overwrite=args.overwrite,
        allow_nonfinite=args.allow_nonfinite,
        dtype=args.dtype,
    )
    print(f"{args.output}: step {trained.step:,} of {args.workdir}")
    for name, size in files.items():
        print(f"  {name:<34}{size:>15,} bytes")
    print(
        "\n".join(
            [
                "load it with",
                *(
                    f"  {line}"
                    for line in model_card.loading(trained.run, trained.vocabulary, args.output)
                ),
            ]
        )
    )
    return 0


def run_jax(args):
    """Write the folder that pretrain/convert/jax_folder.py describes."""
    from models import build
    from pretrain.convert.jax_folder import write_jax_folder
    from pretrain.convert.safe_folder import check_output
    from pretrain.inference.trained import open_trained
    from pretrain.training.state import make_inputs

    check_output(args.output, args.overwrite)
    trained = open_trained(args.workdir, args.step)
    random_head.check_head(trained, "export", args.allow_random_head)
    config = trained.run.model
    files = write_jax_folder(
        args.output,
        config,
        trained.params,
        trained.vocabulary,
        make_inputs(build(config), trained.run.data.objective, 1),
        overwrite=args.overwrite,
        allow_nonfinite=args.allow_nonfinite,
        dtype=args.dtype,
    )
    print(f"{args.output}: step {trained.step:,} of {args.workdir}")
    for name, size in files.items():
        if not name.startswith(("params/", "models/")):
            print(f"  {name:<34}{size:>15,} bytes")
    print(
        f"  {'params/':<34}{sum(size for name, size in files.items() if name.startswith('params/')):>15,} bytes"
    )
    print(f"load it as {args.output}/README.md shows")
    return 0
