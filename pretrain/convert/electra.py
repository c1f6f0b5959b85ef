"""ELECTRA under its three names: models/electra.py, and `ElectraForPreTraining` and `ElectraForMaskedLM` of Hugging Face transformers.

Theirs are two models in two folders, discriminator and generator, each with a copy of the embeddings that ours share.
"""

from models.config import ElectraConfig
from pretrain.convert import bert, config_fields, name_map
from pretrain.families.rules import SAME, linear, norm

PARTS = ("generator",)  # the folder within the discriminator's

EMBEDDINGS = (
    ("embeddings/words/embedding", "electra.embeddings.word_embeddings.weight", SAME),
    ("embeddings/positions/embedding", "electra.embeddings.position_embeddings.weight", SAME),
    ("embeddings/segments/embedding", "electra.embeddings.token_type_embeddings.weight", SAME),
    *norm("embeddings/norm", "electra.embeddings.LayerNorm"),
)
RULES = (
    *EMBEDDINGS,
    *bert.layers("discriminator/encoder/layers", "electra.encoder.layer.{i}"),
    *linear("judgement/transform", "discriminator_predictions.dense"),
    *linear("judgement/score", "discriminator_predictions.dense_prediction"),
    *bert.layers("generator/encoder/layers", "generator/electra.encoder.layer.{i}"),
    *linear("word/transform", "generator/generator_predictions.dense"),
    *norm("word/norm", "generator/generator_predictions.LayerNorm"),
    ("word/bias", "generator/generator_lm_head.bias", SAME),
)
WIDEN = {  # where a network is not as wide as the words' vectors: the field with its width
    "width": linear("discriminator/widen", "electra.embeddings_project"),
    "generator_width": linear("generator/widen", "generator/electra.embeddings_project"),
}
HEADS = (
    "discriminator_predictions.",
    "generator/generator_predictions.",
    "generator/generator_lm_head.",
)  # may be absent
SHARED = {f"generator/{name}": name for _, name, _ in EMBEDDINGS}
COPIES = SHARED | {  # the output's table is the input's; older files hold it twice
    "generator/generator_lm_head.weight": "electra.embeddings.word_embeddings.weight",
    "generator/generator_predictions.bias": "generator/generator_lm_head.bias",
}
BUFFERS = tuple(
    f"{part}electra.embeddings.{name}"
    for part in ("", "generator/")
    for name in ("position_ids", "token_type_ids")
)

FIELDS = (  # our field, their key, what an absent key means: small
    ("vocab", "vocab_size", 30522),
    ("length", "max_position_embeddings", 512),
    ("segments", "type_vocab_size", 2),
    ("embedding", "embedding_size", 128),
    ("depth", "num_hidden_layers", 12),
    ("dropout", "hidden_dropout_prob", 0.1),
    ("attention_dropout", "attention_probs_dropout_prob", 0.1),
    ("epsilon", "layer_norm_eps", 1e-12),
)
SIZES = (
    ("width", "hidden_size", 256),
    ("heads", "num_attention_heads", 4),
    ("mlp", "intermediate_size", 1024),
)
GENERATOR_SIZES = tuple((f"generator_{field}", key, absent) for field, key, absent in SIZES)
FIXED = {
    "model_type": "electra",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def rules(config):
    return RULES + tuple(
        rule
        for field, rows in WIDEN.items()
        if getattr(config, field) != config.embedding
        for rule in rows
    )


def depths(config):
    return {"discriminator/encoder": config.depth, "generator/encoder": config.depth}


def to_hf(config, params):
    """{name: float32 array}: what the two `model.safetensors` hold, the generator's under `generator/`."""
    tensors = name_map.export(params, rules(config), depths(config))
    return tensors | {copy: tensors[name] for copy, name in SHARED.items()}


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a discriminator and its generator, with their heads or without.

    A missing head stays as initialised. Raises ValueError that names what is missing, has no place, has the wrong shape or type, or
    is not the same in both where ours is one.
    """
    tensors = name_map.merge_copies(
        name_map.rename(tensors, bert.modern("electra", tensors)), COPIES
    )
    body = ("electra.", "generator/electra.")
    return name_map.fill(
        tensors, rules(config), depths(config), init_params, heads=HEADS, body=body, known=BUFFERS
    )


def hf_config(config, vocabulary):
    """The dict of config.json, and of the generator's under "generator"."""

    def described(kind, sizes):
        common = {"initializer_range": 0.02, "pad_token_id": vocabulary.pad, "dtype": "float32"}
        return {
            "architectures": [kind],
            **config_fields.write(config, FIELDS + sizes, FIXED),
            **common,
        }

    return described("ElectraForPreTraining", SIZES) | {
        "generator": described("ElectraForMaskedLM", GENERATOR_SIZES)
    }


def our_config(hf_config):
    """The ElectraConfig of a config.json with its generator's. Raises ValueError that names a setting that Electra does not have."""
    generator = hf_config["generator"]
    ours = config_fields.read(hf_config, ElectraConfig, FIELDS + SIZES, FIXED)
    other = config_fields.read(generator, ElectraConfig, FIELDS + GENERATOR_SIZES, FIXED)
    for field, key, _ in FIELDS:
        if ours[field] != other[field]:
            raise ValueError(
                f"{key} is {ours[field]!r}, and {other[field]!r} in generator/config.json; {ElectraConfig.__name__} has one for both"
            )
    return ElectraConfig(**ours | other)
