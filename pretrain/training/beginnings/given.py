"""The model with whose parameters a run begins: a run, or a Hugging Face folder."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
from etils import epath

from data.corpus.hub.address import is_address
from data.images.encoding import ImageEncoding
from data.vocabulary.base import Vocabulary
from models import build
from models.config.heads import HeadedConfig
from pretrain.convert.hub.model_folder import find_folder
from pretrain.convert.read_write import open_model
from pretrain.families import find_family
from pretrain.settings.overrides import ConfigError
from pretrain.training.state import init_params
from pretrain.workdir.check import is_hugging_face_folder
from pretrain.workdir.trained import open_trained


@dataclasses.dataclass(frozen=True)
class GivenModel:
    """A model with whose parameters a run begins.

    Attributes:
      place: the workdir or the folder, as it was named.
      step: the step of the checkpoint; None: of a Hugging Face folder.
      config: its configuration.
      params: its parameters, float32 in the memory of the host.
      encoding: its vocabulary, or the classes of its images.
      missing: names of tensors that a folder lacks. Their parameters are random.
    """

    place: str
    step: int | None
    config: Any
    params: Any
    encoding: Vocabulary | ImageEncoding
    missing: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """The place, and the step of a run."""
        return self.place if self.step is None else f"{self.place} at step {self.step:,}"


def open_given(place: str, step: int | None = None) -> GivenModel:
    """Return the model in a workdir, in a Hugging Face folder, or at an address hf://...

    Args:
      step: the step of a workdir's checkpoint; None: the newest sound one.

    Raises:
      ConfigError: the folder holds a fine-tuned model, or is no workdir and has no `step`.
      FileNotFoundError: there is no checkpoint.
      ValueError: the folder is damaged, or no such model.
    """
    if not is_address(place) and not is_hugging_face_folder(epath.Path(place)):
        trained = open_trained(place, step)
        params = jax.device_get(trained.params)
        return GivenModel(place, trained.step, trained.run.model, params, trained.encoding)
    if step is not None:
        raise ConfigError(f"--step {step}: {place} is no workdir, so it has no steps")
    opened = open_model(find_folder(place).path)
    config: Any = opened.config
    make_objective = None
    if not isinstance(config, HeadedConfig):
        make_objective = find_family(config).make_import_objective
    if make_objective is None:
        raise ConfigError(
            f"--from: {place} has a {type(config).__name__}; give a pretrained model without a head"
        )
    init = partial(init_params, build(config), make_objective(config), 0)
    params, missing, _ = opened.load_params(config, init)
    return GivenModel(place, None, config, params, opened.encoding, missing)
