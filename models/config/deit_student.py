"""The sizes of a DeiT that learns from a teacher."""

import dataclasses
from typing import ClassVar

from models.config.base import TEACHER
from models.config.deit import DeitConfig
from models.config.lenet import LenetConfig
from models.config.vit import VitConfig

Teacher = VitConfig | DeitConfig | LenetConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeitStudentConfig(DeitConfig):
    """A DeiT whose distillation token learns from a teacher (Touvron et al. 2021, section 4).

    The teacher reads the same pixels, which it normalises by its own mean and deviation.
    """

    module: ClassVar[str] = "deit_student:DeitStudent"

    # A trained image classifier, which `distil` copies from its workdir.
    teacher: Teacher = dataclasses.field(default_factory=VitConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher.predicts_patches:
            raise ValueError("the teacher predicts masked patches and no classes")
        for name in ("image_size", "classes", "channels"):
            own, other = getattr(self, name), getattr(self.teacher, name)
            if own != other:
                raise ValueError(
                    f"the student has {name}={own} and its teacher {name}={other}: both read the "
                    "same images and score the same classes"
                )

    @property
    def frozen_params(self) -> tuple[str, ...]:
        """Path prefixes of the teacher's parameters."""
        return (TEACHER,)
