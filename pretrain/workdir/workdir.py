"""The folder of a run, and what it knows. Imports neither JAX nor TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import os
from functools import cached_property
from typing import Any

from etils import epath

from data.corpus.buckets import check_bucket
from data.corpus.paths import as_path
from pretrain.config import Run, read_json
from pretrain.host.terminal import escape_line
from pretrain.workdir.metrics_file import read_metrics


@dataclasses.dataclass(frozen=True)
class Workdir:
    """The folder of a run, here or in a bucket. It is a path: `workdir / name` is a file in it.

    `has_finished_steps` and `run` are read when you first ask, and remembered. Open the folder
    again once you hold its lease, or after another program may have changed it.
    """

    path: epath.Path

    @classmethod
    def open(cls, path: epath.PathLike | Workdir) -> Workdir:
        """Return the workdir at a path, or the workdir itself.

        Nothing is read yet, and the folder may be missing.
        """
        return path if isinstance(path, Workdir) else cls(epath.Path(as_path(path)))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> epath.Path:
        return self.path / name

    @property
    def has_config(self) -> bool:
        """Whether it has a configuration, so that `train` resumes it or begins it again."""
        return (self / "config.json").exists()

    @cached_property
    def has_finished_steps(self) -> bool:
        """Whether it has a checkpoint, sound or damaged, or a logged step.

        A run that fails before its first step is over, such as for want of memory, leaves none: its
        workdir accepts any configuration.
        """
        for folder in (self / "checkpoints", self / "damaged"):
            if folder.is_dir() and any(
                path.name.split(".")[0].isdigit() for path in folder.iterdir()
            ):
                return True
        log = self / "metrics.jsonl"
        return log.exists() and log.stat().length > 0

    @cached_property
    def run(self) -> Run:
        """The configuration in config.json. Raises FileNotFoundError if this is not a workdir."""
        from pretrain.workdir.check import explain_no_workdir, is_hugging_face_folder

        check_bucket(self)
        if not self.has_config or is_hugging_face_folder(self.path):
            raise FileNotFoundError(explain_no_workdir(self, "config.json"))
        return read_json(self / "config.json")

    def list_steps(self) -> list[int]:
        """Return the steps that have a checkpoint, sound or not, newest first."""
        folder = self / "checkpoints"
        if not folder.is_dir():
            return []
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())[::-1]

    def read_origin(self) -> Any:
        """Return the JSON that `import` or another command wrote on the first parameters.

        Returns None for a model that was trained from random parameters.
        """
        path = self / "origin.json"
        return json.loads(path.read_text()) if path.exists() else None

    def describe_origin(self) -> str:
        """Return what its first parameters come from, in words; "" if they were random."""
        from pretrain.workdir.check import read_object

        origin = read_object(self / "origin.json")
        folder, step = origin.get("folder"), origin.get("pretrained_step")
        if not isinstance(folder, str):
            return ""
        at_step = f" at step {step:,}" if isinstance(step, int) else ""
        state = ", with its optimizer" if origin.get("with_optimizer") else ""
        return escape_line(folder) + at_step + state

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the sound rows of metrics.jsonl; [] before the first step."""
        return read_metrics(self / "metrics.jsonl")
