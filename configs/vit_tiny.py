"""ViT-Ti/16: DeiT-Ti without distillation.

5.7 M parameters; store and schedule as in vit_small.

    python -m pretrain train vit_tiny --workdir runs/vit_tiny data.store=imagenet

Not run.
"""

from data.config import Data
from data.objectives.image_classification import ImageClassification
from models.config.deit import IMAGENET
from models.config.vit import VitConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=VitConfig(width=192, num_heads=3, mlp=768, pixels=IMAGENET, path_dropout=0.1),
        data=Data(
            objective=ImageClassification(
                num_ops=2, op_rate=0.5, erase_rate=0.25, mixup=0.8, cutmix=1.0, repeats=3
            ),
            batch_size=1024,
            threads=16,
        ),
        optimizer=AdamW(
            learning_rate=1e-3,
            warmup_steps=6_255,
            decay="cosine",
            end_lr_ratio=0.01,
            weight_decay=0.05,
            epsilon=1e-8,
            max_grad_norm=0.0,
        ),
        train=Train(steps=375_300, label_smoothing=0.1),
    )
