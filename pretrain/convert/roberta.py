"""RoBERTa under both its names: models/roberta.py and `RobertaForMaskedLM` of Hugging Face transformers."""

from models.config import RobertaConfig
from pretrain.convert import bert, config_fields, name_map
from pretrain.families.rules import SAME, linear, norm

RULES = (
    *bert.encoder("roberta"),
    *linear("word/transform", "lm_head.dense"),
    *norm("word/norm", "lm_head.layer_norm"),
    ("word/bias", "lm_head.bias", SAME),
)
HEADS = (
    "roberta.pooler.",
    "lm_head.",
)  # transformers saves a RobertaForMaskedLM without the pooler
COPIES = {  # the output's table is the input's; older files hold it twice
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}
BUFFERS = ("roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids")

FIELDS = (  # our field, their key, what an absent key means
    *(field for field in bert.FIELDS if field[0] not in ("vocab", "length")),
    ("vocab", "vocab_size", 50265),
    ("first_position", "pad_token_id", 1),  # one less
    ("length", "max_position_embeddings", 512),  # with the rows before the first position
)
FIXED = bert.FIXED | {"model_type": "roberta"}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    return name_map.export(params, RULES, {"roberta/encoder": config.depth})


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a RoBERTa with pooler and head, one of them or none.

    What is missing stays as initialised. Raises ValueError that names what is missing otherwise, has no place, or has
    the wrong shape or type.
    """
    tensors = name_map.merge_copies(
        name_map.rename(tensors, bert.modern("roberta", tensors)), COPIES
    )
    depths = {"roberta/encoder": config.depth}
    return name_map.fill(
        tensors, RULES, depths, init_params, heads=HEADS, body=("roberta.",), known=BUFFERS
    )


def hf_config(config, vocabulary):
    """The dict of config.json. Raises ValueError unless positions begin behind the id of the padding."""
    if vocabulary.pad != config.first_position - 1:
        raise ValueError(
            f"RoBERTa's positions begin behind the padding's id, which is {vocabulary.pad} in this vocabulary; "
            f"the model's begin at {config.first_position} (model.first_position)"
        )
    return {
        "architectures": ["RobertaForMaskedLM"],
        **config_fields.write(config, FIELDS, FIXED),
        "max_position_embeddings": config.first_position + config.length,
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The RobertaConfig of a config.json. Raises ValueError that names a setting that RobertaForMaskedLM does not have."""
    fields = config_fields.read(hf_config, RobertaConfig, FIELDS, FIXED)
    first = fields["first_position"] + 1
    return RobertaConfig(**fields | {"first_position": first, "length": fields["length"] - first})
