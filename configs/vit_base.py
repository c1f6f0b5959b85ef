"""ViT-B/16 on ImageNet (Dosovitskiy et al. 2021).

86.6 M parameters; 4,096 of 1,281,167 images (224 x 224 pixels) a step, 300 epochs. Hyperparameters
follow the paper for ImageNet alone (tables 1 and 3).

    python -m pretrain prepare-images IMAGENET/train --validation IMAGENET/val --output imagenet
    python -m pretrain train vit_base --workdir runs/vit_base data.store=imagenet

Not run.
"""

from data.config import Data
from data.objectives.image_classification import ImageClassification
from models.config.vit import VitConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=VitConfig(dropout=0.1),
        data=Data(objective=ImageClassification(), batch_size=4096, threads=16),
        optimizer=AdamW(
            learning_rate=3e-3,
            warmup_steps=10_000,
            decay="cosine",
            weight_decay=0.3,
            epsilon=1e-8,
        ),
        train=Train(steps=93_835),
    )
