"""The arguments of a fine-tuning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass
class FinetuneRequest:
    """The arguments of `finetune`: the verb's, with the same names and forms.

    `split_task_arguments` gives each task a request with one text instead of each list.

    Attributes:
      workdir: the folder of the run, or of one run per seed.
      task: names of tasks, or NAME=FILE.
      pretrained: the workdir of a pretrained or imported model, --from; or
      config: the configuration of a new encoder with random parameters.
      step: the step of the checkpoint in `pretrained`; None: the newest sound one.
      train: the training examples; None: from TFDS.
      heldout: held-out examples, all of which are scored.
      held_out: a share of `train` to hold out; None: 0.1.
      columns, prefix, labels: of the files, see `finetune --help`.
      limit: most examples of each of several tasks in an epoch.
      scheme: by which tags spell entities.
      on_bad_example: "refuse" or "skip".
      file_format: format of all files of examples, whatever their names, such as "conll".
      epochs: passes over all examples.
      seeds: number of runs, with consecutive seeds; None: one run.
      fresh: the parameters that are random at first: "head" or "all".
      min_count, vectors: of the words of a new model.
      overrides: `path=value` arguments.
      profile, prometheus, tracker: how the runs are watched.
    """

    # Any: a list of texts before `split_task_arguments`; or None where the other start is given.
    workdir: str
    task: Any
    pretrained: Any = None
    config: Any = None
    step: int | None = None
    train: Any = None
    heldout: Any = None
    held_out: float | None = None
    columns: Any = None
    prefix: Any = None
    labels: Any = None
    limit: int | None = None
    scheme: Any = None
    on_bad_example: str = "refuse"
    file_format: str | None = None
    epochs: float | None = None
    seeds: int | None = None
    fresh: str = "head"
    min_count: int | None = None
    vectors: Any = None
    overrides: Sequence[str] = ()
    profile: str | None = None
    prometheus: str | None = None
    tracker: str | None = None

    def __post_init__(self) -> None:
        for name, known in (("fresh", ("head", "all")), ("on_bad_example", ("refuse", "skip"))):
            if (value := getattr(self, name)) not in known:
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(f"{flag} {value}: must be {' or '.join(known)}")
