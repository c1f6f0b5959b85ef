"""Write a checkpoint for other programs, and push it to the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from pretrain.api.loading import find_checkpoint
from pretrain.host.terminal import print_notice
from pretrain.processes.cluster_detection import detect_cluster
from pretrain.publish.export_options import ExportOptions
from pretrain.settings.arguments import PathText, format_path
from pretrain.settings.verb_options import option, takes

if TYPE_CHECKING:
    from pretrain.publish.upload import Pushed, Target
    from pretrain.workdir.trained import Trained


class ExportArguments(ExportOptions):
    """The options of `export`."""

    model: PathText | Trained = option("workdir of a run", "--workdir", kw_only=False)
    output: str = option(
        "new folder on this machine", kw_only=False, converter=format_path, metavar="FOLDER"
    )


class PushArguments(ExportOptions):
    """The options of `push`."""

    model: PathText | Trained = option("workdir of a run", "--workdir", kw_only=False)
    repository: str = option(
        "repository; created if there is none. Log in with `hf auth login`, or set HF_TOKEN",
        "--repo",
        kw_only=False,
        metavar="USER/NAME",
    )
    branch: str = option(
        "branch; created if there is none (default: %(default)s)",
        "--revision",
        default="main",
        metavar="BRANCH",
    )
    private: bool = option(
        "make a new repository private; an error if it exists and is public", default=False
    )
    as_pull_request: bool = option(
        "propose the commit as a pull request to a repository that exists",
        "--create-pr",
        default=False,
    )
    message: str | None = option(
        "first line of the commit (default: names the step)", default=None, metavar="TEXT"
    )


@takes(ExportArguments)
def export(options: ExportArguments) -> dict[str, int]:
    """Write a checkpoint as a folder that `transformers` opens; return {file: size in bytes}.

    With `by_words` it writes a folder for each number of words, and the files begin with its name.
    The folder appears whole or not at all. `model` may also be a loaded checkpoint, which is read
    from its workdir again.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      FileExistsError: the folder exists and may not be replaced.
      ValueError: `transformers` has no such model, the head is random, or weights are not finite or
        beyond the range of the dtype.
    """
    from pretrain.publish.export import export_run

    if options.by_words:
        from pretrain.publish.word_exports import export_revisions

        workdir, *_ = find_checkpoint(options.model, None, options.parameters)
        found = export_revisions(workdir, options.output, options, print_notice)
        return {
            f"{name}/{file}": size
            for name, exported in found.items()
            for file, size in exported.files.items()
        }
    workdir, *chosen = find_checkpoint(options.model, options.step, options.parameters)
    options = dataclasses.replace(options, **dict(zip(("step", "parameters"), chosen)))
    return export_run(workdir, options.output, options).files


@takes(PushArguments)
def push(options: PushArguments) -> Pushed | None:
    """Export a checkpoint and upload it in one commit to a repository of the Hugging Face Hub.

    With `by_words` each number of words is a branch, and the upload of `main` is returned.

    Of several processes the first one uploads; the others return None. `model` may also be a loaded
    checkpoint, which is read from its workdir again.

    Raises:
      HubError: no token, no permission, or no network.
      ValueError: as `export`.
    """
    from pretrain.publish.push import push_run

    workdir, *chosen = find_checkpoint(options.model, options.step, options.parameters)
    if detect_cluster(os.environ).process_index:
        return None
    if options.by_words:
        from pretrain.publish.word_exports import push_revisions

        return push_revisions(workdir, make_target(options), options, print_notice)["main"]
    options = dataclasses.replace(options, **dict(zip(("step", "parameters"), chosen)))
    return push_run(workdir, make_target(options), options, print_notice)


def make_target(options: PushArguments) -> Target:
    """Return where a model is uploaded to. Raises ValueError for a malformed name."""
    from pretrain.publish.upload import MESSAGE, Target

    return Target(
        options.repository,
        branch=options.branch,
        private=options.private,
        as_pull_request=options.as_pull_request,
        message=MESSAGE if options.message is None else options.message,
    )
