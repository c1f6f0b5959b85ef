"""A DeiT that learns from a teacher: models/deit_student.py. It is exported without the teacher."""

import dataclasses
import typing
from typing import Any

from data.objectives.image_distillation import ImageDistillation
from models.config.base import ImageConfig
from models.config.deit_student import DeitStudentConfig, Teacher
from pretrain.families import deit
from pretrain.families.family_record import DistillationRecipe


def fit_student(model: DeitStudentConfig, teacher: ImageConfig) -> DeitStudentConfig:
    """Return the configuration of a student with another teacher.

    Raises:
      ValueError: the teacher reads other images, or scores another number of classes.
    """
    return dataclasses.replace(model, teacher=typing.cast(Any, teacher))


def take_teacher(
    model: DeitStudentConfig, teacher: ImageConfig, params: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters of the teacher, under their name in the student's model."""
    return {"teacher": params}


FAMILY = dataclasses.replace(
    deit.FAMILY,
    name="deit_student",
    config=DeitStudentConfig,
    extends=("deit", "vit", "lenet"),
    objectives=(ImageDistillation,),
    make_import_objective=None,
    distillation=DistillationRecipe(
        teachers=typing.get_args(Teacher), fit_student=fit_student, init_params=take_teacher
    ),
)
