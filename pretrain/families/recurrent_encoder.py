"""Recurrent encoders: models/recurrent_encoder.py. Hugging Face transformers has no such model."""

from models.config.recurrent_encoder import RecurrentEncoderConfig
from pretrain.families.family_record import Family
from pretrain.settings import AdamW

FAMILY = Family(
    name="recurrent_encoder",
    config=RecurrentEncoderConfig,
    objectives=(),
    predictor="",
    title="recurrent classifier",
    task="text-classification",
    token_roles=("pad", "unk", "cls", "sep"),
    template="cls_sep",
    optimizer=AdamW(learning_rate=1e-3),
)
