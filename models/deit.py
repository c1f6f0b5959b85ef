"""DeiT (Touvron et al. 2021): a ViT with a second learned token, which learns from a teacher.

B batch   H W height and width in pixels   C channels   L positions   D width   K classes
"""

import jax

from models.layers.linear import TRUNCATED, Initializer
from models.vit import VisionTransformer


class DistilledVisionTransformer(VisionTransformer):
    """A ViT with a distillation token after the class token, and a head for each (section 4).

    It predicts by the mean of both heads' logits, through which labels alone train both heads.
    """

    kernel_init: Initializer = TRUNCATED

    def setup(self) -> None:
        """Make the parts of a ViT and the second head."""
        super().setup()
        self.distilled_classifier = self.make_head()

    def compute_states(self, pixels: jax.Array, train: bool = False) -> jax.Array:
        """Return the mean logits of the classes, float32 [B, K], of uint8 images [B, H, W, C]."""
        by_class, by_distillation = self.compute_both(pixels, train)
        return (by_class + by_distillation) / 2

    def compute_both(self, pixels: jax.Array, train: bool = False) -> tuple[jax.Array, jax.Array]:
        """Return the logits of the class token and of the distillation token, float32 [B, K].

        The first learn from labels, the second from the teacher.
        """
        x_BLD = self.encode(pixels, train)
        return self.classifier(x_BLD[:, 0]), self.distilled_classifier(x_BLD[:, 1])
