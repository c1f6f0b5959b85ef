"""A small ViT on masked patches of MNIST.

vit_mnist's model learns the mean brightness of masked patches without labels; the second command
fine-tunes it on labels. Store as in vit_mnist.

    python -m pretrain train vit_masked_mnist --workdir runs/masked
    python -m pretrain train vit_mnist --workdir runs/labels --from runs/masked
"""

from data.config import Data
from data.objectives.masked_patches import MaskedPatches
from models.config.base import Pixels
from models.config.vit import VitConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=VitConfig(
            image_size=28,
            patch_size=7,
            pooling="patches",
            pixels=Pixels(mean=(0.5,), std=(0.5,)),
            width=128,
            depth=6,
            num_heads=4,
            mlp=256,
        ),
        data=Data(
            store="runs/mnist",
            objective=MaskedPatches(
                size=28, channels=1, patch_size=7, crop_ratio=1.0, min_area=0.7, flip=False
            ),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=200, decay="cosine", weight_decay=0.05),
        train=Train(steps=4_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
