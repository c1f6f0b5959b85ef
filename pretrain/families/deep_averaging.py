"""Averages of words: models/deep_averaging.py. Hugging Face transformers has no such model."""

from models.config.deep_averaging import DeepAveragingConfig
from pretrain.families.family_record import Family
from pretrain.settings import AdamW

FAMILY = Family(
    name="deep_averaging",
    config=DeepAveragingConfig,
    objectives=(),
    predictor="",
    title="deep averaging network",
    task="text-classification",
    token_roles=("pad", "unk", "cls", "sep"),
    template="cls_sep",
    optimizer=AdamW(learning_rate=1e-3),
)
