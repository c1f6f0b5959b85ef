"""Linformer: models/linformer.py. Hugging Face transformers has no such model."""

from data.objectives.masked_lm import MaskedLm
from models.config.linformer import LinformerConfig
from pretrain.families.family_record import Family

FAMILY = Family(
    name="linformer",
    config=LinformerConfig,
    objectives=(MaskedLm,),
    predictor="fill_mask:MaskFiller",
    title="Linformer encoder",
    task="fill-mask",
    untrained_parts="the pooler",
    token_roles=("pad", "cls", "sep", "mask"),
    template="cls_sep_sep",
)
