"""Export of a checkpoint of a run to a folder on this machine."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

from data.members import call_later
from models import build
from models.config.embedder import EmbedderConfig
from pretrain.config import Run
from pretrain.convert import find_model_family
from pretrain.convert.export_folder import check_output
from pretrain.convert.read_write import write_model
from pretrain.inference import random_head
from pretrain.publish.cards import model_card
from pretrain.publish.cards.adapter_card import UNNAMED
from pretrain.publish.export_options import ExportOptions
from pretrain.publish.jax_folder import write_jax_folder
from pretrain.training.state import make_dummy_inputs
from pretrain.workdir.check import check_orbax_path
from pretrain.workdir.trained import open_trained
from pretrain.workdir.workdir import Workdir

DEFAULTS = ExportOptions()
write_adapter = call_later("pretrain.convert.adapter_folder:write_adapter")


@dataclasses.dataclass(frozen=True)
class Exported:
    """An export: its step, run and encoding, and {file: size in bytes} of the folder."""

    step: int
    run: Run
    encoding: Any
    files: dict[str, int]


def export_run(
    workdir: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: ExportOptions = DEFAULTS,
    place: str = "FOLDER",
) -> Exported:
    """Write a checkpoint of a run as a folder, which appears whole or not at all.

    Args:
      options: what is written.
      place: what the lines of the model card load: a folder, or a repository of the Hub.

    Raises:
      FileNotFoundError: there is no such checkpoint.
      FileExistsError: `output` exists and may not be replaced.
      ValueError: `transformers` has no such model, the head is random, or weights are not finite or
        beyond the range of the dtype.
    """
    path = check_output(output, options.overwrite)  # before the parameters are read: minutes
    if options.format == "jax":
        check_orbax_path(path.resolve())
    if options.format == "peft":
        return export_adapter(workdir, path, options, place)
    trained = open_trained(workdir, options.step, options.parameters)
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
        return Exported(trained.step, trained.run, trained.encoding, files)
    card = model_card.make_card(trained, options.dtype, place, options.license)
    files = write_model(output, config, trained.params, trained.encoding, card=card, **common)
    return Exported(trained.step, trained.run, trained.encoding, files)


def export_adapter(
    workdir: str | os.PathLike[str],
    output: pathlib.Path,
    options: ExportOptions,
    place: str = "FOLDER",
) -> Exported:
    """Write the factors and the head of a checkpoint of a run with LoRA as a folder of `peft`.

    place: as in `export_run`.

    Raises:
      ValueError: the run has no LoRA, or `export_run`'s reasons.
    """
    trained = open_trained(workdir, options.step, merge=False)
    train, model = trained.run.train, trained.run.model
    if not train.lora_rank:
        raise ValueError(
            f"{workdir}: was trained without LoRA, so it has no adapter; leave --format peft out, "
            "or train with train.lora_rank"
        )
    if isinstance(model, EmbedderConfig):
        raise ValueError(
            f"{workdir}: an embedder is exported whole, with its pooling; "
            "leave --format peft out, and the factors are merged"
        )
    random_head.check_head(trained, "export", options.allow_random_head)
    base = options.base_model or find_base_repository(workdir)
    find_model_family(model).require_hugging_face()
    card = model_card.make_card(trained, "float32", place, options.license, base or UNNAMED)
    files = write_adapter(
        *(output, model, trained.params, train.lora_alpha, train.lora_dropout),
        base=base,
        card=card,
        allow_nonfinite=options.allow_nonfinite,
    )
    return Exported(trained.step, trained.run, trained.encoding, files)


def find_base_repository(workdir: str | os.PathLike[str]) -> str | None:
    """Return the repository with the very weights that a run with LoRA began with, if any."""
    return (Workdir.open(workdir).read_origin() or {}).get("base_repository")
