"""LeNet-5 on MNIST (LeCun et al. 1998), for a CPU.

Training crops keep 70 % of the area or more and are not mirrored.

    python -m pretrain prepare-images train.npz --validation test.npz --output runs/mnist
    python -m pretrain train lenet_mnist --workdir runs/lenet

Accuracy: benchmarks/results/image_distillation.md.
"""

from typing import Any

from data.config import Data
from data.objectives.image_classification import ImageClassification
from models.config.lenet import LenetConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    model: Any = LenetConfig()
    return Run(
        model=model,
        data=Data(
            store="runs/mnist",
            objective=ImageClassification(
                size=28, channels=1, crop_ratio=1.0, min_area=0.7, flip=False
            ),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=5e-3, warmup_steps=100, decay="cosine", weight_decay=0.0),
        train=Train(steps=2_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
