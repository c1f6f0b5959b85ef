"""push --workdir W --repo USER/NAME: a checkpoint as a repository of the Hugging Face Hub.

With --folder FOLDER it is an export that `export` has written.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from pretrain.api.exporting import PushArguments, make_target
from pretrain.convert.export_folder import ADAPTER_CONFIG
from pretrain.processes.cluster_detection import detect_cluster
from pretrain.publish.export_options import ExportOptions
from pretrain.settings.verb_options import add_options, list_options, read_options

if TYPE_CHECKING:
    from pretrain.publish.upload import Pushed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `push` to a parser."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--workdir", help="workdir of a run, which is exported first")
    source.add_argument("--folder", help="folder that `export` has written")
    exported = [field.name for field in list_options(ExportOptions)]
    add_options(parser, PushArguments, leave_out=["model", *exported])
    group = parser.add_argument_group("the export of --workdir, as of `export`")
    add_options(group, ExportOptions, leave_out=["overwrite"])


def run(args: argparse.Namespace) -> int:
    """Upload the files and print the page of the commit; return 0."""
    from pretrain.publish.upload import push_folder

    target = make_target(read_options(PushArguments, args))
    options = read_options(ExportOptions, args)
    if args.folder and options != ExportOptions():
        raise ValueError("--folder names a finished export; no option of an export changes it")
    cluster = detect_cluster(os.environ)
    if cluster.process_index:
        print(f"process {cluster.process_index} uploads nothing: the first does", file=sys.stderr)
        return 0
    if args.by_words:
        from pretrain.publish.word_exports import push_revisions

        for name, pushed in push_revisions(args.workdir, target, options).items():
            print(f"{name}: {pushed.url}")
        return 0
    if args.folder:
        pushed = push_folder(args.folder, target)
    else:
        from pretrain.publish.push import push_run

        pushed = push_run(args.workdir, target, options)
    print("\n".join(list_lines(pushed, args.format)))
    return 0


def list_lines(pushed: Pushed, format: str) -> list[str]:
    """Return lines on what was uploaded, and how it is loaded.

    format: as in `ExportOptions`; a folder that is pushed has the default.
    """
    lines = [f"{pushed.repository}: commit {pushed.commit}, {sum(pushed.files.values()):,} bytes"]
    lines += [
        f"  {name:<34}{size:>15,} bytes"
        for name, size in pushed.files.items()
        if not name.startswith(("params/", "models/"))
    ]
    lines += [f"  {name:<34}        removed" for name in pushed.removed]
    lines.append(pushed.url)
    if ADAPTER_CONFIG in pushed.files:
        lines.append(f"load it with `peft`, as its README.md does: {pushed.repository}")
    elif format == "transformers":
        lines.append(f"import it with: import hf://{pushed.repository} --workdir W")
    return lines
