r"""DeiT-B taught by a ViT-B/16 (Touvron et al. 2021).

87.3 M parameters and the teacher's 86.6 M; 1,024 images of ImageNet (224 x 224 pixels) a step, 300
epochs (tables 1 and 9). The paper's teacher is a RegNetY-16GF of 84 M.

    python -m pretrain prepare-images IMAGENET/train --validation IMAGENET/val --output imagenet
    python -m pretrain train vit_base --workdir runs/vit_base data.store=imagenet
    python -m pretrain distil deit_base_distilled --teacher runs/vit_base --workdir runs/deit \
        data.store=imagenet
    python -m pretrain train deit_base_distilled --workdir runs/deit data.store=imagenet

Each image is read three times in a row (repeated augmentation), so the paper's epoch reads a third
of the images. Not run.
"""

from data.config import Data
from data.objectives.image_distillation import ImageDistillation
from models.config.deit_student import DeitStudentConfig
from models.config.vit import VitConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=DeitStudentConfig(teacher=VitConfig(dropout=0.1)),
        data=Data(
            objective=ImageDistillation(
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
