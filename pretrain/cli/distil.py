"""distil CONFIG --teacher WORKDIR --workdir W: a run whose student begins with every n-th layer of a trained BERT (Sanh et al. 2019, section 3)."""

import sys

from pretrain.config import load
from pretrain.inference import random_head


def add_arguments(parser):
    parser.add_argument(
        "config", help="distilbert_base, configs/distilbert_base.py, or a saved config.json"
    )
    parser.add_argument(
        "--teacher",
        required=True,
        metavar="WORKDIR",
        help="of a BERT that was trained, or imported",
    )
    parser.add_argument(
        "--step", type=int, help="the teacher's checkpoint; the newest good one unless given"
    )
    parser.add_argument(
        "--workdir", required=True, help="a new folder for the run, which `train` goes on with"
    )
    random_head.add_argument(parser)
    parser.add_argument(
        "overrides", nargs="*", metavar="path=value", help="e.g. data.store=STORE model.depth=3"
    )


def run(args):
    config = load(args.config, args.overrides)
    import os

    from pretrain.training.new_workdir import start_workdir
    from pretrain.workdir.load import open_trained

    trained = open_trained(
        args.teacher, args.step, report=lambda text: print(text, file=sys.stderr)
    )
    check_teacher(config.model, trained.run.model, trained.step)
    random_head.check_head(trained, "distil", args.allow_random_head, sentence_heads=False)
    params = begin(config.model, trained.run.model, trained.params)
    origin = {
        "folder": os.path.basename(os.path.abspath(args.teacher)),
        "teacher_step": trained.step,
    }
    start_workdir(args.workdir, config, params, trained.vocabulary, origin)
    print(
        f"{args.workdir}: {config.model.depth} layers of {args.teacher}, step {trained.step:,}, and all {config.model.teacher_depth} as its teacher"
    )
    words = " ".join([args.config, f"--workdir {args.workdir}", *args.overrides])
    print(f"next:\n  python -m pretrain train {words}")
    return 0


def check_teacher(model, teacher, step):
    """Raise ValueError, which names the fields, unless the student can learn from such a teacher."""
    from models.config import BertConfig, DistilBertConfig

    if not isinstance(model, DistilBertConfig) or model.teacher_depth is None:
        raise ValueError(
            f"only a DistilBertConfig with a teacher_depth is distilled, not a {type(model).__name__}"
        )
    if not isinstance(teacher, BertConfig):
        raise ValueError(f"the teacher is a BERT, not a {type(teacher).__name__}")
    theirs = {
        name: getattr(teacher, name)
        for name in ("vocab", "length", "segments", "width", "heads", "mlp", "epsilon")
    }
    theirs["teacher_depth"] = teacher.depth
    if words := [
        f"model.{name}={value}" for name, value in theirs.items() if getattr(model, name) != value
    ]:
        raise ValueError(
            f"the student's model is not as its teacher's of step {step:,}; say {' '.join(words)}"
        )
    if model.depth > teacher.depth:
        raise ValueError(
            f"model.depth={model.depth}: the student has more layers than its teacher's {teacher.depth}"
        )


def begin(model, teacher, params):
    """The parameters with which a student begins, beside its teacher's: every n-th layer from the first on, and all that is not a layer.

    A student has no segments: the vector of the first one, which the teacher adds to every token of a single text, goes into the positions.
    """
    import jax
    import numpy as np

    embeddings = dict(params["bert"]["embeddings"])
    encoder = params["bert"]["encoder"]
    rows = [encoder[f"layer_{i}"] for i in range(teacher.depth)] if "layer_0" in encoder else None

    def layer(i):
        return rows[i] if rows else jax.tree.map(lambda leaf: leaf[i], encoder["layers"])

    def stack(numbers):
        chosen = [layer(i) for i in numbers]
        if model.scan:
            return {"layers": jax.tree.map(lambda *leaves: np.stack(leaves), *chosen)}
        return {f"layer_{n}": one for n, one in enumerate(chosen)}

    segments = embeddings.pop("segments")["embedding"]
    own = embeddings | {
        "positions": {"embedding": embeddings["positions"]["embedding"] + segments[0]}
    }
    every = [i * teacher.depth // model.depth for i in range(model.depth)]
    return {
        "student": {"embeddings": own, "encoder": stack(every), "word": params["word"]},
        "teacher": {
            "embeddings": params["bert"]["embeddings"],
            "encoder": stack(range(teacher.depth)),
            "word": params["word"],
        },
    }
