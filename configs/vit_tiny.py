"""ViT-Ti/16 on ImageNet's 1,281,167 images: the recipe of DeiT-Ti without its distillation token.

5.7 M parameters, 1,024 images of 224 x 224 pixels a step, 300 epochs (Touvron et al. 2021, tables
1 and 9).

    python -m pretrain prepare-images IMAGENET/train --validation IMAGENET/val --output imagenet
    python -m pretrain train vit_tiny --workdir runs/vit_tiny data.store=imagenet

An image is read three times in a row (repeated augmentation), so that an epoch of the paper reads a
third of the images. Not run: the project had no accelerator.
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
