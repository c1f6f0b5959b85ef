"""A small ViT on MNIST, in float32 for a CPU.

6 layers of width 128 over patches of 7 pixels. Crops keep 70 % of the area or more and are not
mirrored.

    python -m pretrain prepare-images train.npz --validation test.npz --output runs/mnist
    python -m pretrain train vit_mnist --workdir runs/vit_mnist

With train.steps=2500, 7.5 minutes on a CPU core: 98.68 % of the test images right
(benchmarks/results/small_runs.md).
"""

from data.config import Data
from data.objectives.image_classification import ImageClassification
from models.config.base import Pixels
from models.config.vit import VitConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=VitConfig(
            image_size=28,
            patch_size=7,
            classes=10,
            pixels=Pixels(mean=(0.5,), std=(0.5,)),
            width=128,
            depth=6,
            num_heads=4,
            mlp=256,
        ),
        data=Data(
            store="runs/mnist",
            objective=ImageClassification(
                size=28, channels=1, crop_ratio=1.0, min_area=0.7, flip=False
            ),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=200, decay="cosine", weight_decay=0.05),
        train=Train(steps=4_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
