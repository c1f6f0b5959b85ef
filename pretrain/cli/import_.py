"""import FOLDER --workdir W: start a run from a Hugging Face model, or from released HDF5 weights.

hf://USER/NAME[@REVISION] in place of the folder downloads the model from the Hugging Face Hub.

A pretrained model becomes step 0 of a run; a fine-tuned model is ready for `predict`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from data.images.encoding import ImageEncoding
from models.config.base import ImageConfig
from models.config.heads import ClassifierConfig, HeadedConfig, SpanReaderConfig, TaggerConfig
from pretrain.command import PROGRAM
from pretrain.config import Run, override_run, validate_run

if TYPE_CHECKING:
    from pretrain.convert.read_write import OpenedModel
    from pretrain.run import Model
    from pretrain.schema.sections import Metric

FINE_TUNED = (  # commands that a fine-tuned model can be used with
    "predict --workdir {} --input FILE",
    "evaluate --workdir {} --labelled FILE",
    "finetune --from {} --task TASK --train FILE --workdir NEW",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `import` to a parser."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="folder with config.json, model.safetensors and the files of a tokenizer or an image "
        "processor; or with options.json and one .hdf5 file; or hf://USER/NAME[@REVISION], a "
        "repository of the Hugging Face Hub",
    )
    parser.add_argument("--workdir", required=True, help="new folder for the run")
    parser.add_argument(
        "--allow-nonfinite",
        action="store_true",
        help="import weights that contain NaN or infinite values (default: an error)",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="changed fields, e.g. data.store=STORE train.steps=1000",
    )


def run(args: argparse.Namespace) -> int:
    """Write the workdir and print a summary; return 0."""
    from etils import epath

    from pretrain.convert.hdf5_folder import is_hdf5_folder, open_hdf5_model
    from pretrain.convert.hub.model_folder import find_folder
    from pretrain.convert.read_write import open_model
    from pretrain.training.new_workdir import start_workdir

    workdir = epath.Path(args.workdir)
    if workdir.exists() and any(workdir.iterdir()):
        raise FileExistsError(f"{workdir} exists and is not empty; name a new workdir")
    folder = find_folder(args.folder)
    opened: Any = (open_hdf5_model if is_hdf5_folder(folder.path) else open_model)(folder.path)
    config = override_run(make_opened_run(opened), args.overrides)
    validate_run(config)
    params, missing, unused = opened.load_params(
        config.model, make_initializer(config), args.allow_nonfinite
    )
    origin = {
        **folder.origin,
        "architectures": opened.architectures,
        "stored": opened.tensors.list_formats(),
        "missing": missing,
        "unused": unused,
    }
    start_workdir(workdir, config, params, opened.encoding, origin)
    print(format_summary(args, opened, config, missing, unused))
    return 0


def make_opened_run(opened: Any) -> Run:
    """Return the default run of a folder: images are cropped as by its image processor."""
    import dataclasses

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
    from pretrain.schema import Evaluate

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
    return TASKS["squad" if isinstance(model, SpanReaderConfig) else "multiple_choice"].metrics


def make_initializer(run: Run) -> Callable[[], Any]:
    """Return a traceable function without arguments that returns a run's initial parameters."""
    from functools import partial

    from models import build
    from pretrain.training.state import init_params

    return partial(init_params, build(run.model), run.data.objective, run.train.seed)


def format_summary(
    args: argparse.Namespace,
    opened: OpenedModel,
    run: Run,
    missing: Sequence[str],
    unused: Sequence[str],
) -> str:
    """Return what was imported, what was missing, and the commands to run next."""
    model: Any = run.model
    kind = ", ".join(opened.architectures) or type(model).__name__
    count = len(opened.tensors) - len(unused)
    lines = [f"{args.workdir}: {kind} from {args.folder}, {count} tensors"]
    if stored := [name for name in opened.tensors.list_formats() if name != "F32"]:
        lines.append(
            f"  stored as {', '.join(stored)}; converted exactly to float32, and exported as such"
        )
    if missing:
        lines.append(
            f"  not in the folder, initialized at random (train.seed={run.train.seed}): "
            f"{', '.join(missing)}"
        )
    if unused:
        lines.append(f"  not part of pretraining, ignored: {', '.join(unused)}")
    if isinstance(model, HeadedConfig):
        lines += [
            *(f"  {line}" for line in describe_head(model, run.data.objective)),
            "next:",
            *(f"  {PROGRAM} {command.format(args.workdir)}" for command in FINE_TUNED),
        ]
        return "\n".join(lines)
    if isinstance(opened.encoding, ImageEncoding):
        return "\n".join([*lines, *describe_images(model, args.workdir)])
    vocabulary = opened.vocabulary
    if model.characters:
        lines += [
            f"  reads words by {model.characters} characters; targets: {model.vocab:,} words",
            "next:",
            f"  {PROGRAM} features --workdir {args.workdir} --input TEXT --layers all "
            "--output FILE.npz",
            f"  {PROGRAM} finetune --from {args.workdir} --task TASK --train FILE --workdir NEW",
        ]
        return "\n".join(lines)
    document = " --document pair" if run.data.objective.name == "seq2seq" else ""
    lines += [
        f"  vocabulary: {vocabulary.kind}, {vocabulary.size:,} ids; model rows: {model.vocab:,}",
        "next:",
        f"  {PROGRAM} prepare TEXT{document} --output STORE --vocabulary {args.workdir}/vocabulary",
        f"  {PROGRAM} evaluate --workdir {args.workdir} --store STORE",
        f"  {PROGRAM} train {args.workdir}/config.json --workdir {args.workdir} "
        "data.store=STORE train.steps=N",
    ]
    return "\n".join(lines)


def describe_images(model: Any, workdir: str) -> list[str]:
    """Return lines on what a model of images reads, and the commands to run next."""
    size = f"{model.image_size} x {model.image_size}"
    return [
        f"  reads images of {size} pixels, {model.channels} channels; {model.classes:,} classes",
        "next:",
        f"  {PROGRAM} evaluate --workdir {workdir} --store STORE",
        f"  {PROGRAM} train {workdir}/config.json --workdir {workdir} "
        "data.store=STORE train.steps=N",
    ]


def describe_head(model: Any, objective: Any) -> list[str]:
    """Return lines on what a fine-tuned model predicts, and on what the folder does not say."""
    if isinstance(model, ClassifierConfig):
        return [
            f"predicts {', '.join(model.labels) or 'a score'} from the columns "
            f"{','.join(objective.columns)}",
            "for pairs of texts, add data.objective.columns=text,text2,label",
        ]
    if isinstance(model, TaggerConfig):
        return [
            f"predicts the tags {', '.join(model.labels)}, of the scheme {model.scheme}",
            "for another scheme, add model.scheme=bio, iob1, iobes, bilou or plain",
        ]
    if isinstance(model, SpanReaderConfig):
        return [
            "predicts the span of a context that answers a question",
            "if a question may have no answer, as in SQuAD 2.0, add model.unanswerable=true",
        ]
    return [
        f"predicts the right one of several texts, {objective.choices} in `evaluate`",
        "for another number, add data.objective.choices=C",
    ]
