"""export --workdir W --output FOLDER: a checkpoint as a folder that `transformers` opens.

With --format jax it is a folder that JAX opens without Cloze, with --format peft an adapter.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pretrain.api.exporting import ExportArguments
from pretrain.inference.random_head import name_parameters
from pretrain.settings.verb_options import add_options, read_options

if TYPE_CHECKING:
    from pretrain.publish.export import Exported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export` to a parser."""
    add_options(parser, ExportArguments)


def run(args: argparse.Namespace) -> int:
    """Write the folder and print its files; return 0."""
    from pretrain.publish.export import export_run

    options = read_options(ExportArguments, args)
    if args.by_words:
        from pretrain.publish.word_exports import export_revisions

        export_revisions(args.workdir, args.output, options)
        return 0
    exported = export_run(args.workdir, args.output, options)
    print(f"{args.output}: {name_parameters(exported.step, args.parameters)} of {args.workdir}")
    print("\n".join(list_file_lines(exported, args.format)))
    if args.format == "jax":
        print(f"to load it, see {args.output}/README.md")
        return 0
    if args.format == "peft":
        print(f"add it to its model: PeftModel.from_pretrained(model, {str(args.output)!r})")
        return 0
    from pretrain.publish.cards.loading_lines import make_loading_lines
    from pretrain.publish.lost_rates import list_lost_rates

    for line in list_lost_rates(exported.run.model, exported.encoding):
        print(line)
    code = make_loading_lines(exported.run, exported.encoding, args.output)
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
