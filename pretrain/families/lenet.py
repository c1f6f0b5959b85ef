"""LeNet-5: models/lenet.py. Hugging Face transformers has no such model."""

from data.objectives.image_classification import ImageClassification
from models.config.lenet import LenetConfig
from pretrain.families.family_record import Family

FAMILY = Family(
    name="lenet",
    config=LenetConfig,
    objectives=(ImageClassification,),
    predictor="images.image_labels:ImageLabeller",
    title="LeNet-5 image classifier",
    task="image-classification",
    token_roles=(),
    template="none",
)
