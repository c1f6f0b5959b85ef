"""push --workdir W --repo USER/NAME: a checkpoint as a repository of the Hugging Face Hub.

With --folder FOLDER it is an export that `export` has written.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from pretrain.cli import export
from pretrain.processes.cluster_detection import detect_cluster

if TYPE_CHECKING:
    from pretrain.publish.upload import Pushed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `push` to a parser."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--workdir", help="workdir of a run, which is exported first")
    source.add_argument("--folder", help="folder that `export` has written")
    parser.add_argument(
        "--repo",
        required=True,
        metavar="USER/NAME",
        help="repository; created if there is none. Log in with `hf auth login`, or set HF_TOKEN",
    )
    parser.add_argument(
        "--revision",
        default="main",
        metavar="BRANCH",
        help="branch; created if there is none (default: %(default)s)",
    )
    parser.add_argument(
        "--private",
        action="store_true",
        help="make a new repository private; an error if it exists and is public",
    )
    parser.add_argument(
        "--create-pr",
        action="store_true",
        help="propose the commit as a pull request to a repository that exists",
    )
    parser.add_argument(
        "--message", metavar="TEXT", help="first line of the commit (default: names the step)"
    )
    export.add_options(parser.add_argument_group("the export of --workdir, as of `export`"))


def run(args: argparse.Namespace) -> int:
    """Upload the files and print the page of the commit; return 0."""
    from pretrain.publish.upload import MESSAGE, Target, push_folder

    target = Target(
        args.repo,
        branch=args.revision,
        private=args.private,
        as_pull_request=args.create_pr,
        message=MESSAGE if args.message is None else args.message,
    )
    options = export.read_options(args)
    if args.folder and options != export.read_options(make_default_options()):
        raise ValueError("--folder names a finished export; no option of an export changes it")
    cluster = detect_cluster(os.environ)
    if cluster.process_index:
        print(f"process {cluster.process_index} uploads nothing: the first does", file=sys.stderr)
        return 0
    if args.folder:
        pushed = push_folder(args.folder, target)
    else:
        from pretrain.publish.push import push_run

        pushed = push_run(args.workdir, target, options)
    print("\n".join(list_lines(pushed, args.format)))
    return 0


def make_default_options() -> argparse.Namespace:
    """Return the options of an export that no argument has changed."""
    parser = argparse.ArgumentParser()
    export.add_options(parser)
    return parser.parse_args([])


def list_lines(pushed: Pushed, format: str) -> list[str]:
    """Return lines on what was uploaded, and how it is loaded."""
    lines = [f"{pushed.repository}: commit {pushed.commit}, {sum(pushed.files.values()):,} bytes"]
    lines += [
        f"  {name:<34}{size:>15,} bytes"
        for name, size in pushed.files.items()
        if not name.startswith(("params/", "models/"))
    ]
    lines += [f"  {name:<34}        removed" for name in pushed.removed]
    lines.append(pushed.url)
    if format == "transformers":
        lines.append(f"import it with: import hf://{pushed.repository} --workdir W")
    return lines
