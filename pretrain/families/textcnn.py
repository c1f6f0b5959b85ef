"""The convolutional classifier: models/textcnn.py. Hugging Face transformers has no such model."""

from models.config.textcnn import TextCnnConfig
from pretrain.families.family_record import Family
from pretrain.settings import AdamW

FAMILY = Family(
    name="textcnn",
    config=TextCnnConfig,
    objectives=(),
    predictor="",
    title="convolutional classifier",
    task="text-classification",
    token_roles=("pad", "unk", "cls", "sep"),
    template="cls_sep",
    optimizer=AdamW(learning_rate=1e-3),
)
