"""ViT: models/vit.py, and `ViTForImageClassification` of Hugging Face transformers."""

from typing import TYPE_CHECKING, Any

from data.objectives.image_classification import ImageClassification
from data.objectives.masked_patches import MaskedPatches
from models.config.base import PatchConfig, Pixels
from models.config.vit import VitConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import EXACT_GELU, Fixed, Key
from pretrain.families.labels import name_labels, read_labels
from pretrain.families.rules import Layout, Rules, map_layer, map_linear, map_norm
from pretrain.families.tensor_steps import add_prefix

if TYPE_CHECKING:
    from data.images.encoding import ImageEncoding

# patch kernel [P, P, C, D] <-> conv kernel [D, C, P, P]
PATCHES = Layout(
    theirs=lambda a: a.transpose(3, 2, 0, 1), ours=lambda a, shape: a.transpose(2, 3, 1, 0)
)
# a token [D] <-> [1, 1, D], and a table [L, D] <-> [1, L, D]
TOKEN = Layout(theirs=lambda a: a[None, None], ours=lambda a, shape: a[0, 0])
TABLE = Layout(theirs=lambda a: a[None], ours=lambda a, shape: a[0])
MAX_CHANNELS = 100

KEYS = (  # our field, their key, the meaning of an absent key
    Key("image_size", "image_size", 224),
    Key("patch_size", "patch_size", 16),
    Key("width", "hidden_size", 768),
    Key("depth", "num_hidden_layers", 12),
    Key("num_heads", "num_attention_heads", 12),
    Key("mlp", "intermediate_size", 3072),
    Key("qkv_bias", "qkv_bias", True),
    Key("dropout", "hidden_dropout_prob", 0.0),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.0),
    Key("epsilon", "layer_norm_eps", 1e-12),
    Fixed("hidden_act", "gelu", also=EXACT_GELU),
)
MASKED_IMAGES = "its decoder predicts the pixels of masked patches, which no objective here does"


def map_images(name: str, has_bias: bool) -> Rules:
    """Return the rules of embeddings, layers and the last norm, under their `name`.

    has_bias: whether queries, keys and values have biases.
    """
    layers = map_layer(
        "encoder/layers",
        f"{name}.encoder.layer.{{i}}",
        query="attention.attention.query",
        key="attention.attention.key",
        value="attention.attention.value",
        out="attention.output.dense",
        attention_norm="layernorm_before",
        up="intermediate.dense",
        down="output.dense",
        mlp_norm="layernorm_after",
    )
    no_bias = () if has_bias else tuple(f"{part}/bias" for part in ("query", "key", "value"))
    patches, positions = "embeddings/patch_embedding", "embeddings/position_embedding/embedding"
    return (
        *map_linear(patches, f"{name}.embeddings.patch_embeddings.projection", PATCHES),
        ("embeddings/class_token", f"{name}.embeddings.cls_token", TOKEN),
        (positions, f"{name}.embeddings.position_embeddings", TABLE),
        *(rule for rule in layers if not str(rule[0]).endswith(no_bias)),
        *map_norm("norm", f"{name}.layernorm"),
    )


def make_rules(config: VitConfig) -> Rules:
    """Return the rules of a configuration."""
    return *map_images("vit", config.qkv_bias), *map_linear("classifier/out", "classifier")


def describe_settings(config: VitConfig, encoding: "ImageEncoding") -> dict[str, Any]:
    """Return further entries of config.json.

    Raises:
      ValueError: the head does not read a class token, as transformers' does.
    """
    if config.pooling != "cls":
        raise ValueError(
            f"model.pooling={config.pooling} cannot be exported: a ViTForImageClassification reads "
            "its class token. `export --format jax` writes a folder that JAX opens without Cloze"
        )
    return describe_classes(config, encoding)


def describe_classes(config: PatchConfig, encoding: "ImageEncoding") -> dict[str, Any]:
    """Return the names of the classes, in which those without a name are LABEL_i."""
    named = encoding.classes
    spare = (f"LABEL_{i}" for i in range(len(named), config.classes))
    settings = {"num_channels": config.channels, "initializer_range": 0.02}
    return settings | name_labels((*named, *spare))


def read_classes(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return our fields with the number of classes, and with a mean and a deviation by channel.

    The file of the image processor has the values of the latter.
    """
    channels = theirs.get("num_channels", 3)
    if type(channels) is not int or not 1 <= channels <= MAX_CHANNELS:
        raise ValueError(f"num_channels is {channels!r:.80}; 1 to {MAX_CHANNELS} are read")
    halves = (0.5,) * channels
    return {**ours, "classes": len(read_labels(theirs)), "pixels": Pixels(mean=halves, std=halves)}


def describe_card(config: PatchConfig) -> list[tuple[str, str]]:
    """Return rows of a model card."""
    size, patch = config.image_size, config.patch_size
    return [
        (
            "reads",
            f"images of {size} x {size} pixels and {config.channels} channels, in "
            f"{config.grid_size**2} patches of {patch} x {patch}",
        )
    ]


def import_classification(config: PatchConfig) -> ImageClassification:
    """Return the objective of an imported model."""
    return ImageClassification(size=config.image_size, channels=config.channels)


FAMILY = Family(
    name="vit",
    config=VitConfig,
    objectives=(ImageClassification, MaskedPatches),
    make_import_objective=import_classification,
    predictor="images.image_labels:ImageLabeller",
    title="ViT image classifier",
    task="image-classification",
    token_roles=(),
    template="none",
    describe_card_rows=describe_card,
    hugging_face=HuggingFaceMap(
        model_type="vit",
        architecture="ViTForImageClassification",
        rules=make_rules,
        stacks={"encoder": "depth"},
        body=("vit.",),
        heads=("classifier.",),
        before_import=(add_prefix("vit."),),
        buffers=("vit.pooler.*",),
        keys=KEYS,
        settings=describe_settings,
        read=read_classes,
        refused={"ViTForMaskedImageModeling": MASKED_IMAGES},
    ),
)
