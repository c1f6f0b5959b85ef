"""ViT-L/16 on ImageNet (Dosovitskiy et al. 2021).

304.3 M parameters; store and schedule as in vit_base.

    python -m pretrain train vit_large --workdir runs/vit_large data.store=imagenet

Not run.
"""

from data.config import Data
from data.objectives.image_classification import ImageClassification
from models.config.vit import VitConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=VitConfig(width=1024, depth=24, num_heads=16, mlp=4096, dropout=0.1),
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
