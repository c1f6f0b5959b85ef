"""Start a run from a Hugging Face model, or from released HDF5 weights."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from models.config.base import ImageConfig
from models.config.classifier import ClassifierConfig
from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.config import Run, override_run, validate_run
from pretrain.settings.arguments import format_optional, format_path, list_arguments
from pretrain.settings.verb_options import VerbOptions, option, takes

if TYPE_CHECKING:
    from pretrain.run import Model
    from pretrain.settings.sections import Metric


class Imported(NamedTuple):
    """What was imported.

    Attributes:
      opened: the folder, a `pretrain.convert.read_write.OpenedModel`.
      run: the configuration of the new run.
      missing: parameters that the folder has not; they are random.
      unused: tensors of the folder that the model has not.
    """

    opened: Any
    run: Run
    missing: Sequence[str]
    unused: Sequence[str]


class ImportOptions(VerbOptions):
    """The options of `import`."""

    folder: str = option(
        "folder with config.json, model.safetensors and the files of a tokenizer or an image "
        "processor; or with options.json and one .hdf5 file; or checkpoint_N, zarr arrays; or "
        "hf://USER/NAME[@REVISION], a repository of the Hugging Face Hub",
        "folder",
        kw_only=False,
        converter=os.fspath,
        metavar="FOLDER",
    )
    workdir: str = option("new folder for the run", kw_only=False, converter=format_path)
    vocabulary: str | None = option(
        "of a checkpoint of zarr arrays, which has none: spiece.model, a folder with it, or "
        "hf://USER/NAME",
        default=None,
        converter=format_optional,
        metavar="PATH",
    )
    allow_nonfinite: bool = option(
        "import weights that contain NaN or infinite values (default: an error)", default=False
    )
    overrides: list[str] = option(
        "changed fields, e.g. data.store=STORE train.steps=1000",
        "overrides",
        default=(),
        kw_only=False,
        converter=list_arguments,
        nargs="*",
        metavar="path=value",
    )


@takes(ImportOptions)
def import_folder(options: ImportOptions) -> Imported:
    """Start a run whose step 0 is a model of `transformers`; return what was imported.

    Raises:
      FileExistsError: the workdir exists and is not empty.
      ValueError: the folder is damaged, or no such model.
    """
    from etils import epath

    from pretrain.convert.arrays.array_folder import is_array_folder, open_array_model
    from pretrain.convert.hdf5_folder import is_hdf5_folder, open_hdf5_model
    from pretrain.convert.hub.model_folder import find_folder
    from pretrain.convert.read_write import open_model
    from pretrain.training.new_workdir import start_workdir
    from pretrain.workdir.check import check_orbax_path

    target = epath.Path(options.workdir)
    check_orbax_path(target)
    if target.exists() and any(target.iterdir()):
        raise FileExistsError(f"{target} exists and is not empty; name a new workdir")
    found = find_folder(options.folder)
    if is_array_folder(found.path):
        opened: Any = open_array_model(found.path, find_vocabulary(options.vocabulary))
    elif options.vocabulary is not None:
        raise ValueError(
            f"--vocabulary is for a checkpoint of zarr arrays, and {options.folder} is none: "
            "it has its own"
        )
    else:
        opened = (open_hdf5_model if is_hdf5_folder(found.path) else open_model)(found.path)
    run = override_run(make_opened_run(opened), options.overrides)
    validate_run(run)
    params, missing, unused = opened.load_params(
        run.model, make_initializer(run), options.allow_nonfinite
    )
    origin = {
        **found.origin,
        "architectures": opened.architectures,
        "stored": opened.tensors.list_formats(),
        "missing": missing,
        "unused": unused,
    }
    start_workdir(target, run, params, opened.encoding, origin)
    return Imported(opened, run, missing, unused)


def find_vocabulary(place: str | None) -> str | None:
    """Return the path of a vocabulary; download it from an address hf://..."""
    from data.corpus.hub.address import is_address
    from pretrain.convert.hub.model_folder import find_folder

    if place is None:
        return None
    return find_folder(place, weights=False).path if is_address(place) else place


def make_opened_run(opened: Any) -> Run:
    """Return the default run of a folder: images are cropped as by its image processor."""
    run = make_starting_run(opened.config)
    if not isinstance(opened.config, ImageConfig):
        return run
    objective: Any = run.data.objective
    objective = dataclasses.replace(objective, crop_ratio=opened.crop_ratio)
    return dataclasses.replace(run, data=dataclasses.replace(run.data, objective=objective))


def make_starting_run(model: Any) -> Run:
    """Return the default run of an imported model's configuration.

    Its objective is the one that the family's record names for imports.
    """
    from data.config import Data
    from pretrain.families import find_family

    if isinstance(model, HeadedConfig):
        return make_headed_run(model)
    make_objective = find_family(model).make_import_objective
    if make_objective is None:
        raise ValueError(f"no objective trains a {type(model).__name__}, so none is imported")
    return Run(model=model, data=Data(objective=make_objective(model)))


def make_headed_run(model: HeadedConfig) -> Run:
    """Return the run of a fine-tuned model, for `predict` and `evaluate --labelled`.

    The examples of a classifier have one text; overrides can name the columns of pairs.
    """
    from data.config import Data
    from pretrain.finetune.encoders import make_head_objective
    from pretrain.settings import Evaluate

    return Run(
        model=cast("Model", model),  # each HeadedConfig in use is one of them
        data=Data(objective=make_head_objective(model)),
        evaluate=Evaluate(metrics=cast("tuple[Metric, ...]", list_head_metrics(model))),
    )


def list_head_metrics(model: HeadedConfig) -> tuple[str, ...]:
    """Return the metrics of a fine-tuned model's task."""
    from pretrain.finetune.tagging_task import select_tag_metrics
    from pretrain.finetune.tasks import TASKS

    if isinstance(model, TaggerConfig):
        return select_tag_metrics(model.scheme)
    if isinstance(model, ClassifierConfig):
        return TASKS["classification" if model.labels else "regression"].metrics[:1]
    if isinstance(model, EmbedderConfig):
        return TASKS["embedding"].metrics
    return TASKS["squad" if isinstance(model, SpanReaderConfig) else "multiple_choice"].metrics


def make_initializer(run: Run) -> Callable[[], Any]:
    """Return a traceable function without arguments that returns a run's initial parameters."""
    from functools import partial

    from models import build
    from pretrain.training.state import init_params

    return partial(init_params, build(run.model), run.data.objective, run.train.seed)
