"""A DeiT that learns from a teacher (Touvron et al. 2021, section 4).

The class token learns from labels, and the distillation token from the teacher's predictions for
the same image. The teacher is a trained image classifier, which stays as it is.

B batch   H W height and width in pixels   C channels   K classes
"""

from typing import NamedTuple

import jax

from models import build
from models.config.deit_student import DeitStudentConfig
from models.deit import DistilledVisionTransformer


class StudentLogits(NamedTuple):
    """The logits of the student's class token and distillation token, and of its teacher.

    Each is float32 [B, K].
    """

    by_class: jax.Array
    by_distillation: jax.Array
    by_teacher: jax.Array

    @property
    def prediction(self) -> jax.Array:
        """The mean logits of both heads, by which the student predicts."""
        return (self.by_class + self.by_distillation) / 2


class DeitStudent(DistilledVisionTransformer):
    """A DeiT and its teacher.

    The call returns the student's prediction, for which the teacher is not needed.
    """

    config: DeitStudentConfig

    def setup(self) -> None:
        """Make the student and the teacher."""
        super().setup()
        self.teacher = build(self.config.teacher, ops=self.ops)

    def __call__(self, pixels: jax.Array, train: bool = False) -> jax.Array:
        """Return the mean logits of both heads, float32 [B, K], of uint8 images [B, H, W, C]."""
        return self.compute_states(pixels, train).prediction

    def compute_states(self, pixels: jax.Array, train: bool = False) -> StudentLogits:
        """Return the logits that the loss compares, of uint8 images [B, H, W, C]."""
        by_teacher = jax.lax.stop_gradient(self.teacher(pixels))
        return StudentLogits(*self.compute_both(pixels, train), by_teacher)
