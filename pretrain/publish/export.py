"""Export of a checkpoint of a run to a folder on this machine."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from models import build
from pretrain.convert import find_model_family
from pretrain.convert.dtypes import TYPES
from pretrain.convert.export_folder import check_output
from pretrain.convert.read_write import write_model
from pretrain.inference import random_head
from pretrain.publish.cards import model_card
from pretrain.publish.jax_folder import write_jax_folder
from pretrain.training.state import make_dummy_inputs
from pretrain.workdir.check import check_orbax_path
from pretrain.workdir.trained import Trained, open_trained

FORMATS = ("transformers", "jax")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """What is exported of a run, and how.

    Attributes:
      step: of the checkpoint; None: the newest sound one.
      format: "transformers" or "jax".
      dtype: of the weights, one of `pretrain.convert.dtypes.TYPES`.
      overwrite: whether an earlier export is replaced.
      allow_nonfinite: whether weights may be NaN or infinite.
      allow_random_head: whether a head that an imported folder had not may be exported untrained.
      place: what the lines of the model card load: a folder, or a repository of the Hub.
    """

    step: int | None = None
    format: str = "transformers"
    dtype: str = "float32"
    overwrite: bool = False
    allow_nonfinite: bool = False
    allow_random_head: bool = False
    place: str = "FOLDER"

    def __post_init__(self) -> None:
        for name, known in (("format", FORMATS), ("dtype", TYPES)):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"--{name} {value}: must be {' or '.join(known)}")


DEFAULTS = ExportOptions()


@dataclasses.dataclass(frozen=True)
class Exported:
    """An export: the checkpoint, and {file: size in bytes} of the folder."""

    trained: Trained
    files: dict[str, int]


def export_run(
    workdir: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: ExportOptions = DEFAULTS,
) -> Exported:
    """Write a checkpoint of a run as a folder, which appears whole or not at all.

    Args:
      workdir: the workdir of the run.
      output: the path of the folder.
      options: what is written.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      FileExistsError: `output` exists and may not be replaced.
      ValueError: `transformers` has no such model, the head is random, or weights are not finite or
        beyond the range of the dtype.
    """
    path = check_output(output, options.overwrite)  # before the parameters are read: minutes
    if options.format == "jax":
        check_orbax_path(path.resolve())
    trained = open_trained(workdir, options.step)
    common: dict[str, Any] = {
        "overwrite": options.overwrite,
        "allow_nonfinite": options.allow_nonfinite,
        "dtype": options.dtype,
        **trained.run.data.objective.list_image_options(),
    }
    config: Any = trained.run.model
    if options.format == "transformers":
        find_model_family(config).require_hugging_face()
    random_head.check_head(trained, "export", options.allow_random_head)
    if options.format == "jax":
        inputs = make_dummy_inputs(build(config), trained.run.data.objective, 1)
        files = write_jax_folder(output, config, trained.params, trained.encoding, inputs, **common)
        return Exported(trained, files)
    card = model_card.make_card(trained, options.dtype, options.place)
    files = write_model(output, config, trained.params, trained.encoding, card=card, **common)
    return Exported(trained, files)
