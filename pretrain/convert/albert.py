"""ALBERT under both its names: models/albert.py and `AlbertForPreTraining` of Hugging Face transformers."""

from models.config import AlbertConfig
from pretrain.convert import bert, config_fields, name_map
from pretrain.families.rules import KERNEL_OUT, SAME, linear, norm

OURS, THEIRS = (
    "albert/encoder/layer",
    "albert.encoder.albert_layer_groups.0.albert_layers.0",
)  # the one that there is

RULES = (
    ("albert/embeddings/words/embedding", "albert.embeddings.word_embeddings.weight", SAME),
    ("albert/embeddings/positions/embedding", "albert.embeddings.position_embeddings.weight", SAME),
    (
        "albert/embeddings/segments/embedding",
        "albert.embeddings.token_type_embeddings.weight",
        SAME,
    ),
    *norm("albert/embeddings/norm", "albert.embeddings.LayerNorm"),
    *linear("albert/widen", "albert.encoder.embedding_hidden_mapping_in"),
    *linear(f"{OURS}/attention/query", f"{THEIRS}.attention.query"),
    *linear(f"{OURS}/attention/key", f"{THEIRS}.attention.key"),
    *linear(f"{OURS}/attention/value", f"{THEIRS}.attention.value"),
    *linear(f"{OURS}/attention/out", f"{THEIRS}.attention.dense", KERNEL_OUT),
    *norm(f"{OURS}/attention_norm", f"{THEIRS}.attention.LayerNorm"),
    *linear(f"{OURS}/mlp/up", f"{THEIRS}.ffn"),
    *linear(f"{OURS}/mlp/down", f"{THEIRS}.ffn_output"),
    *norm(f"{OURS}/mlp_norm", f"{THEIRS}.full_layer_layer_norm"),
    *linear("albert/pooler", "albert.pooler"),
    *linear("word/transform", "predictions.dense"),
    *norm("word/norm", "predictions.LayerNorm"),
    ("word/bias", "predictions.bias", SAME),
    *linear("order", "sop_classifier.classifier"),
)
HEADS = (
    "albert.pooler.",
    "predictions.",
    "sop_classifier.",
)  # released encoders come without some of them
COPIES = {  # the output's table is the input's; older files hold it twice
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
BUFFERS = ("albert.embeddings.position_ids", "albert.embeddings.token_type_ids")

FIELDS = (  # our field, their key, what an absent key means: xxlarge
    ("vocab", "vocab_size", 30000),
    ("length", "max_position_embeddings", 512),
    ("segments", "type_vocab_size", 2),
    ("embedding", "embedding_size", 128),
    ("width", "hidden_size", 4096),
    ("depth", "num_hidden_layers", 12),
    ("heads", "num_attention_heads", 64),
    ("mlp", "intermediate_size", 16384),
    ("dropout", "hidden_dropout_prob", 0.0),
    ("attention_dropout", "attention_probs_dropout_prob", 0.0),
    ("epsilon", "layer_norm_eps", 1e-12),
)
FIXED = {
    "model_type": "albert",
    "hidden_act": "gelu_new",  # the authors' gelu is this; conversions of their first release call it "gelu", which is another
    "position_embedding_type": "absolute",
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "tie_word_embeddings": True,
}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    return name_map.export(params, RULES, {})


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of an ALBERT with pooler and both heads, some of them or none.

    What is missing stays as initialised. Raises ValueError that names what is missing otherwise, has no place, or has
    the wrong shape or type.
    """
    tensors = name_map.merge_copies(
        name_map.rename(tensors, bert.modern("albert", tensors)), COPIES
    )
    return name_map.fill(
        tensors, RULES, {}, init_params, heads=HEADS, body=("albert.",), known=BUFFERS
    )


def hf_config(config, vocabulary):
    """The dict of config.json."""
    return {
        "architectures": ["AlbertForPreTraining"],
        **config_fields.write(config, FIELDS, FIXED),
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The AlbertConfig of a config.json. Raises ValueError that names a setting that AlbertForPretraining does not have."""
    return AlbertConfig(**config_fields.read(hf_config, AlbertConfig, FIELDS, FIXED))
