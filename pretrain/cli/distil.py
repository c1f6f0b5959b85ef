"""distil CONFIG --teacher WORKDIR --workdir W: a run whose student begins with every n-th layer of a trained BERT (Sanh et al. 2019, section 3)."""

import sys

from pretrain.config import load
from pretrain.inference import random_head


def add_arguments(parser):
    parser.add_argument(
        "config", help="a name in configs/, a .py file like those, or a saved config.json"
    )
    parser.add_argument(
        "--teacher",
        required=True,
        metavar="WORKDIR",
        help="of a model that was trained, or imported",
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

    from pretrain.inference.trained import open_trained
    from pretrain.training.new_workdir import start_workdir

    trained = open_trained(
        args.teacher, args.step, report=lambda text: print(text, file=sys.stderr)
    )
    distilled = check_teacher(config.model, trained.run.model, trained.step)
    random_head.check_head(trained, "distil", args.allow_random_head, sentence_heads=False)
    params = distilled.begin(config.model, trained.run.model, trained.params)
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
    """Return the family's `Distilled`. Raises ValueError, which names the fields, unless the student can learn from such a teacher."""
    from pretrain.families import FAMILIES, family_of

    distilled = family_of(model).distilled
    if distilled is None or model.teacher_depth is None:
        students = " or ".join(
            family.config.__name__ for family in FAMILIES.values() if family.distilled
        )
        raise ValueError(
            f"only a {students} with a teacher_depth is distilled, not a {type(model).__name__}"
        )
    if type(teacher) is not distilled.teacher:
        raise ValueError(
            f"the teacher is a {distilled.teacher.__name__}, not a {type(teacher).__name__}"
        )
    if words := [
        f"model.{name}={value}"
        for name, value in distilled.describe(teacher).items()
        if getattr(model, name) != value
    ]:
        raise ValueError(
            f"the student's model is not as its teacher's of step {step:,}; say {' '.join(words)}"
        )
    if model.depth > teacher.depth:
        raise ValueError(
            f"model.depth={model.depth}: the student has more layers than its teacher's {teacher.depth}"
        )
    return distilled
