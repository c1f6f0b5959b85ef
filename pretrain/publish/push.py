"""Push of a checkpoint of a run to a repository of the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

from pretrain.publish.export import DEFAULTS, export_run, find_base_repository
from pretrain.publish.export_files import list_export_files
from pretrain.publish.export_options import ExportOptions
from pretrain.publish.lost_rates import list_lost_rates
from pretrain.publish.upload import MESSAGE, Pushed, Target, check_target, upload_files


def push_run(
    workdir: str | os.PathLike[str],
    target: Target,
    options: ExportOptions = DEFAULTS,
    report: Callable[[str], Any] = print,
) -> Pushed:
    """Export a checkpoint of a run to a temporary folder, and upload it in one commit.

    Raises:
      HubError: as `check_target`, which precedes the export, and `upload_files`.
      ValueError: as `export_run`, and for an adapter whose base is in no repository.
    """
    if options.format == "peft" and not (options.base_model or find_base_repository(workdir)):
        raise ValueError(
            f"{workdir}: began with a model that is in no repository, and nobody can use an "
            "adapter without its base: push the base, and name it by --base-model USER/NAME"
        )
    check_target(target)
    with tempfile.TemporaryDirectory(prefix="cloze-push-") as scratch:
        folder = pathlib.Path(scratch, "export")
        exported = export_run(workdir, folder, options, target.repository)
        if options.format == "transformers":
            for line in list_lost_rates(exported.run.model, exported.encoding):
                report(line)
        if target.message == MESSAGE:
            target = dataclasses.replace(target, message=f"{MESSAGE} at step {exported.step:,}")
        return upload_files(list_export_files(folder), target, report)
