"""A small DeiT taught by LeNet-5 on MNIST, for a CPU.

6 layers of width 128 as in vit_mnist, in float32. The target is the teacher's class (hard
distillation).

    python -m pretrain prepare-images train.npz --validation test.npz --output runs/mnist
    python -m pretrain train lenet_mnist --workdir runs/lenet
    python -m pretrain distil deit_mnist_distilled --teacher runs/lenet --workdir runs/deit
    python -m pretrain train deit_mnist_distilled --workdir runs/deit

Accuracy: benchmarks/results/image_distillation.md.
"""

from data.config import Data
from data.objectives.image_distillation import ImageDistillation
from models.config.base import Pixels
from models.config.deit_student import DeitStudentConfig
from models.config.lenet import LenetConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=DeitStudentConfig(
            image_size=28,
            patch_size=7,
            classes=10,
            pixels=Pixels(mean=(0.5,), std=(0.5,)),
            width=128,
            depth=6,
            num_heads=4,
            mlp=256,
            path_dropout=0.0,
            teacher=LenetConfig(),
        ),
        data=Data(
            store="runs/mnist",
            objective=ImageDistillation(
                size=28, channels=1, crop_ratio=1.0, min_area=0.7, flip=False
            ),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=200, decay="cosine", weight_decay=0.05),
        train=Train(steps=4_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
