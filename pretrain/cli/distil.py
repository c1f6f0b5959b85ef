"""distil CONFIG --teacher WORKDIR --workdir W: start a run that learns from a trained model.

The record of the student's family says which parameters come from the teacher.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pretrain.api.store_vocabulary import follow_teacher
from pretrain.config import Run, load
from pretrain.host.command import PROGRAM
from pretrain.inference.random_head import HeadOptions, add_checkpoint_arguments, check_head
from pretrain.settings.verb_options import CONFIG_HELP, add_options

if TYPE_CHECKING:
    from pretrain.families.family_record import DistillationRecipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `distil` to a parser."""
    parser.add_argument("config", help=f"the student: {CONFIG_HELP}")
    parser.add_argument(
        "--teacher",
        required=True,
        metavar="WORKDIR",
        help="workdir of the trained or imported teacher",
    )
    add_checkpoint_arguments(parser)
    parser.add_argument(
        "--workdir", required=True, help="new folder for the run, which `train` then continues"
    )
    add_options(parser, HeadOptions)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="path=value",
        help="changed fields, e.g. data.store=STORE model.depth=3",
    )


def run(args: argparse.Namespace) -> int:
    """Write the workdir of the student and print the command that trains it; return 0."""
    config = load(args.config, args.overrides)
    from pretrain.training.new_workdir import start_workdir
    from pretrain.workdir.trained import open_trained

    recipe = find_recipe(config.model)
    trained = open_trained(
        args.teacher, args.step, args.parameters, report=lambda text: print(text, file=sys.stderr)
    )
    teacher = trained.run.model
    check_teacher(recipe, teacher)
    config = follow_teacher(config, teacher, args.config, args.overrides)
    check_head(trained, "distil", args.allow_random_head, sentence_heads=False)
    config = dataclasses.replace(config, model=recipe.fit_student(config.model, teacher))
    given = recipe.init_params(config.model, teacher, trained.params)
    origin = {
        "folder": os.path.basename(os.path.abspath(args.teacher)),
        "teacher_step": trained.step,
    }
    params = given | draw_missing(config, given)
    encoding: Any = trained.encoding
    start_workdir(args.workdir, config, params, encoding, origin)
    student: Any = config.model
    print(
        f"{args.workdir}: a {type(student).__name__} of {student.depth} layers, and its teacher, "
        f"the {type(teacher).__name__} of {args.teacher}, step {trained.step:,}"
    )
    saved = shlex.quote(os.path.join(args.workdir, "config.json"))
    print(f"next:\n  {PROGRAM} train {saved} --workdir {shlex.quote(args.workdir)}")
    return 0


def find_recipe(model: Any) -> DistillationRecipe:
    """Return the distillation record of a student's family; ValueError for a model without one."""
    from pretrain.families import FAMILIES

    recipes = {f.config: f.distillation for f in FAMILIES.values() if f.distillation}
    if type(model) not in recipes:
        raise ValueError(
            f"the student must be a {name_kinds(recipes)}, not a {type(model).__name__}"
        )
    return recipes[type(model)]


def check_teacher(recipe: DistillationRecipe, teacher: Any) -> None:
    """Raise ValueError unless the teacher's configuration is of a class that a student takes."""
    if type(teacher) not in recipe.teachers:
        raise ValueError(
            f"the teacher must be a {name_kinds(recipe.teachers)}, not a {type(teacher).__name__}"
        )


def name_kinds(kinds: Iterable[type]) -> str:
    """Return the names of classes, for a message."""
    return " or a ".join(kind.__name__ for kind in kinds)


def draw_missing(run: Run, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the top-level parameters that `given` lacks, as a run without a teacher draws them."""
    import jax

    from models import build
    from pretrain.training.state import init_params

    def draw() -> dict[str, Any]:
        params = init_params(build(run.model), run.data.objective, run.train.seed)
        return {name: value for name, value in params.items() if name not in given}

    return jax.jit(draw)() if jax.eval_shape(draw) else {}
