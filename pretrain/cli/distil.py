"""distil CONFIG --teacher WORKDIR --workdir W: start a run that distils a trained BERT.

The student starts from every n-th layer of its teacher (Sanh et al. 2019, section 3).
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from pretrain.config import load
from pretrain.inference import random_head

if TYPE_CHECKING:
    from pretrain.families.family_record import DistillationRecipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `distil` to a parser."""
    parser.add_argument(
        "config",
        help="configuration of the student: a name in configs/, path of a .py file of the same "
        "form, or a saved config.json",
    )
    parser.add_argument(
        "--teacher",
        required=True,
        metavar="WORKDIR",
        help="workdir of the trained or imported teacher",
    )
    parser.add_argument(
        "--step",
        type=int,
        help="step of the teacher's checkpoint (default: the newest intact one)",
    )
    parser.add_argument(
        "--workdir", required=True, help="new folder for the run, which `train` then continues"
    )
    random_head.add_argument(parser)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="changed fields, e.g. data.store=STORE model.depth=3",
    )


def run(args: argparse.Namespace) -> int:
    """Write the workdir of the student and print the command that trains it; return 0."""
    config = load(args.config, args.overrides)
    from pretrain.inference.trained import open_trained
    from pretrain.training.new_workdir import start_workdir

    trained = open_trained(
        args.teacher, args.step, report=lambda text: print(text, file=sys.stderr)
    )
    distilled = check_teacher(config.model, trained.run.model, trained.step)
    random_head.check_head(trained, "distil", args.allow_random_head, sentence_heads=False)
    params = distilled.init_params(config.model, trained.run.model, trained.params)
    origin = {
        "folder": os.path.basename(os.path.abspath(args.teacher)),
        "teacher_step": trained.step,
    }
    start_workdir(args.workdir, config, params, trained.vocabulary, origin)
    student: Any = config.model
    print(
        f"{args.workdir}: student with {student.depth} layers of {args.teacher}, step "
        f"{trained.step:,}, and teacher with all {student.teacher_depth}"
    )
    arguments = " ".join([args.config, f"--workdir {args.workdir}", *args.overrides])
    print(f"next:\n  python -m pretrain train {arguments}")
    return 0


def check_teacher(model: Any, teacher: Any, step: int) -> DistillationRecipe:
    """Return the distillation record of the student's family.

    Args:
      model: the configuration of the student's model.
      teacher: the configuration of the teacher's model.
      step: the step of the teacher, for messages.

    Raises:
      ValueError: if the student cannot learn from such a teacher; names the fields.
    """
    from pretrain.families import FAMILIES, find_family

    distilled = find_family(model).distillation
    if distilled is None or model.teacher_depth is None:
        students = " or ".join(
            family.config.__name__ for family in FAMILIES.values() if family.distillation
        )
        raise ValueError(
            f"the student must be a {students} with a teacher_depth, not a {type(model).__name__}"
        )
    if type(teacher) is not distilled.teacher:
        raise ValueError(
            f"the teacher must be a {distilled.teacher.__name__}, not a {type(teacher).__name__}"
        )
    if remedies := [
        f"model.{name}={value}"
        for name, value in distilled.describe_student(teacher).items()
        if getattr(model, name) != value
    ]:
        raise ValueError(
            f"the student's model differs from that of its teacher at step {step:,}; "
            f"set {' '.join(remedies)}"
        )
    if model.depth > teacher.depth:
        raise ValueError(
            f"model.depth={model.depth}: the student has more layers than its teacher, which has "
            f"{teacher.depth}"
        )
    return distilled
