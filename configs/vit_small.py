"""ViT-S/16: DeiT-S without distillation.

22.1 M parameters; 1,024 images a step, 300 epochs (Touvron et al. 2021, tables 1 and 9), each image
three times in a row as in deit_base_distilled. Store as in vit_base.

    python -m pretrain train vit_small --workdir runs/vit_small data.store=imagenet

Not run.
"""

from data.config import Data
from data.objectives.image_classification import ImageClassification
from models.config.deit import IMAGENET
from models.config.vit import VitConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=VitConfig(width=384, num_heads=6, mlp=1536, pixels=IMAGENET, path_dropout=0.1),
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
