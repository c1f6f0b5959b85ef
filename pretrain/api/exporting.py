"""Write a checkpoint for other programs, and push it to the Hugging Face Hub."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pretrain.api.arguments import format_path
from pretrain.api.evaluating import find_checkpoint
from pretrain.host.terminal import print_notice
from pretrain.processes.cluster_detection import detect_cluster

if TYPE_CHECKING:
    from pretrain.publish.upload import Pushed
    from pretrain.workdir.trained import Trained


def export(
    model: str | os.PathLike[str] | Trained, output: str | os.PathLike[str], **options: Any
) -> dict[str, int]:
    """Write a checkpoint as a folder that `transformers` opens; return {file: size in bytes}.

    Args:
      model: a workdir or a loaded checkpoint, which is read from its workdir again.
      output: the new folder, which appears whole or not at all.
      options: fields of `pretrain.publish.export.ExportOptions`, such as dtype="bfloat16",
        format="jax", step=1000, overwrite=True.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      FileExistsError: the folder exists and may not be replaced.
      ValueError: `transformers` has no such model, the head is random, or weights are not finite or
        beyond the range of the dtype.
    """
    from pretrain.publish.export import export_run

    workdir, chosen = _make_options(model, options)
    return export_run(workdir, format_path(output), chosen).files


def push(
    model: str | os.PathLike[str] | Trained,
    repository: str,
    *,
    private: bool = False,
    branch: str | None = None,
    as_pull_request: bool = False,
    message: str | None = None,
    **options: Any,
) -> Pushed | None:
    """Export a checkpoint and upload it in one commit to a repository of the Hugging Face Hub.

    Of several processes the first one uploads; the others return None.

    Args:
      model: a workdir or a loaded checkpoint, which is read from its workdir again.
      repository: "user/name", which is created if it does not exist.
      private: a new repository is private, and a public one is refused.
      branch: the branch of the commit; None: main.
      as_pull_request: the commit becomes a pull request.
      message: the first line of the commit.
      options: as of `export`.

    Raises:
      HubError: no token, no permission, or no network.
      ValueError: as `export`.
    """
    from pretrain.publish.push import push_run
    from pretrain.publish.upload import Target

    workdir, chosen = _make_options(model, options)
    if detect_cluster(os.environ).process_index:
        return None
    named = {"branch": branch, "message": message}
    target = Target(
        repository,
        private=private,
        as_pull_request=as_pull_request,
        **{name: value for name, value in named.items() if value is not None},
    )
    return push_run(workdir, target, chosen, print_notice)


def _make_options(
    model: str | os.PathLike[str] | Trained, options: dict[str, Any]
) -> tuple[str, Any]:
    """Return the workdir and the options of an export. Raises ValueError for an unknown option."""
    import dataclasses

    from pretrain.publish.export import ExportOptions

    known = [field.name for field in dataclasses.fields(ExportOptions) if field.name != "place"]
    if unknown := [name for name in options if name not in known]:
        raise ValueError(f"export has no option {unknown[0]!r}; it has {', '.join(known)}")
    workdir, step = find_checkpoint(model, options.get("step"))
    values: dict[str, Any] = options | {"step": step}
    return workdir, ExportOptions(**values)
