"""ViT-L/16 (Dosovitskiy et al. 2021, table 1): 24 layers of width 1,024, 224 x 224 pixels.

304,326,632 parameters with 1,000 classes.

    python -m pretrain prepare-images FOLDER --output runs/images
    python -m pretrain train vit_large --workdir runs/vit_large data.store=runs/images

Batch, steps and what training changes at random are those of DeiT for 300 epochs of ImageNet
(Touvron et al. 2021, table 9), without repeated augmentation. Not run.
"""

from data.config import Data
from data.objectives.image_classification import ImageClassification
from models.config.vit import VitConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=VitConfig(width=1024, depth=24, num_heads=16, mlp=4096, path_dropout=0.1),
        data=Data(
            objective=ImageClassification(
                num_ops=2, magnitude=9.0, erase_rate=0.25, mixup=0.8, cutmix=1.0
            ),
            batch_size=1024,
            threads=16,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=6_255, decay="cosine", weight_decay=0.05),
        train=Train(steps=375_300, label_smoothing=0.1),
        evaluate=Evaluate(every=6_255),
        checkpoint=Checkpoint(every=6_255),
    )
