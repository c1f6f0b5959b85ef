"""import FOLDER --workdir W: a Hugging Face model as the beginning of a run, or a fine-tuned classifier as one that is done."""

import os

from models.config.heads import ClassifierConfig
from pretrain.config import Run, override, validate

CLASSIFIER = (  # what can be done with one
    "predict --workdir {} --input FILE",
    "evaluate --workdir {} --labelled FILE",
    "finetune --from {} --task TASK --train FILE --workdir NEW",
)


def add_arguments(parser):
    parser.add_argument(
        "folder", metavar="FOLDER", help="with config.json, model.safetensors and tokenizer files"
    )
    parser.add_argument("--workdir", required=True, help="a new folder for the run")
    parser.add_argument(
        "--allow-nonfinite",
        action="store_true",
        help="import weights that hold NaN or infinite values, which are refused otherwise",
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="path=value", help="e.g. data.store=STORE train.steps=1000"
    )


def run(args):
    from etils import epath

    from pretrain.convert.read_write import open_model
    from pretrain.training.new_workdir import start_workdir

    workdir = epath.Path(args.workdir)
    if workdir.exists() and any(workdir.iterdir()):
        raise FileExistsError(f"{workdir}: exists and is not empty; name a new workdir")
    opened = open_model(args.folder)
    config = override(starting_run(opened.config), args.overrides)
    validate(config)
    params, missing, unused = opened.params(config.model, initialiser(config), args.allow_nonfinite)
    origin = {
        "folder": os.path.basename(os.path.abspath(args.folder)),
        "architectures": opened.architectures,
        "stored": opened.tensors.formats(),
        "missing": missing,
        "unused": unused,
    }
    start_workdir(workdir, config, params, opened.vocabulary, origin)
    print(summary(args, opened, config, missing, unused))
    return 0


def starting_run(model):
    """Return the run that an imported model begins, for overrides to change, with the objective that its family's record has for it."""
    from data.config import Data
    from pretrain.families import family_of

    if isinstance(model, ClassifierConfig):
        return classifying_run(model)
    return Run(model=model, data=Data(objective=family_of(model).import_run(model)))


def classifying_run(model):
    """The run of a classifier, for `predict` and `evaluate --labelled`; a pair's columns are for overrides to name."""
    from data.config import Data
    from data.objectives import Classification, Regression
    from pretrain.finetune.encoders import separators
    from pretrain.schema import Evaluate

    objective = (Classification if model.labels else Regression)(
        length=min(128, model.length), separators=separators(model.encoder)
    )
    return Run(
        model=model,
        data=Data(objective=objective),
        evaluate=Evaluate(metrics=("accuracy" if model.labels else "pearson",)),
    )


def initialiser(run):
    """A traceable function without arguments that gives the parameters with which `run` would begin."""
    from functools import partial

    from models import build
    from pretrain.training.state import init_params

    return partial(init_params, build(run.model), run.data.objective, run.train.seed)


def summary(args, opened, run, missing, unused):
    """What was taken, what was not there, and what can be done next."""
    kind = ", ".join(opened.architectures) or type(run.model).__name__
    lines = [
        f"{args.workdir}: {kind} from {args.folder}, {len(opened.tensors) - len(unused)} tensors"
    ]
    if stored := [name for name in opened.tensors.formats() if name != "F32"]:
        lines.append(
            f"  stored as {', '.join(stored)}: the same numbers in float32 here, and in an export"
        )
    if missing:
        lines.append(
            f"  not in the folder, begun at random (train.seed={run.train.seed}): {', '.join(missing)}"
        )
    if unused:
        lines.append(f"  not part of pretraining, left out: {', '.join(unused)}")
    if isinstance(run.model, ClassifierConfig):
        lines.append(
            f"  tells {', '.join(run.model.labels) or 'a score'}, of the columns {','.join(run.data.objective.columns)}"
        )
        lines.append("  of pairs: add data.objective.columns=text,text2,label")
        return "\n".join(
            [
                *lines,
                "next:",
                *(f"  python -m pretrain {words.format(args.workdir)}" for words in CLASSIFIER),
            ]
        )
    vocabulary, pairs = (
        opened.vocabulary,
        " --document pair" if run.data.objective.name == "seq2seq" else "",
    )
    lines.append(
        f"  vocabulary: {vocabulary.kind}, {vocabulary.size:,} ids; model rows: {run.model.vocab:,}"
    )
    lines += [
        "next:",
        f"  python -m pretrain prepare TEXT{pairs} --output STORE --vocabulary {args.workdir}/vocabulary",
        f"  python -m pretrain evaluate --workdir {args.workdir} --store STORE",
        f"  python -m pretrain train {args.workdir}/config.json --workdir {args.workdir} "
        "data.store=STORE train.steps=N",
    ]
    return "\n".join(lines)
