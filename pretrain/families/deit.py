"""DeiT: models/deit.py, and `DeiTForImageClassificationWithTeacher` of transformers."""

from data.objectives.image_classification import ImageClassification
from models.config.deit import DeitConfig
from pretrain.families import vit
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.rules import Rules, map_linear
from pretrain.families.tensor_steps import add_prefix

ONE_HEAD = (
    "its one head reads the class token and not the distillation token. A DeiT that was trained "
    "without the latter is a ViTForImageClassification"
)


def make_rules(config: DeitConfig) -> Rules:
    """Return the rules of a configuration."""
    return (
        *vit.map_images("deit", config.qkv_bias),
        ("embeddings/distillation_token", "deit.embeddings.distillation_token", vit.TOKEN),
        *map_linear("classifier/out", "cls_classifier"),
        *map_linear("distilled_classifier/out", "distillation_classifier"),
    )


FAMILY = Family(
    name="deit",
    config=DeitConfig,
    extends=("vit",),
    objectives=(ImageClassification,),
    make_import_objective=vit.import_classification,
    predictor="images.image_labels:ImageLabeller",
    title="distilled DeiT image classifier",
    task="image-classification",
    token_roles=(),
    template="none",
    describe_card_rows=vit.describe_card,
    hugging_face=HuggingFaceMap(
        model_type="deit",
        architecture="DeiTForImageClassificationWithTeacher",
        rules=make_rules,
        stacks={"encoder": "depth"},
        body=("deit.",),
        heads=("cls_classifier.", "distillation_classifier."),
        before_import=(add_prefix("deit."),),
        buffers=("deit.pooler.*",),
        keys=vit.KEYS,
        settings=vit.describe_classes,
        read=vit.read_classes,
        refused={
            "DeiTForImageClassification": ONE_HEAD,
            "DeiTForMaskedImageModeling": vit.MASKED_IMAGES,
        },
    ),
)
