"""BERT under both its names: models/bert.py and `BertForPreTraining` of Hugging Face transformers."""

from models.config import BertConfig
from pretrain.convert import config_fields, name_map
from pretrain.families.rules import KERNEL_OUT, SAME, linear, norm


def layers(ours, theirs):
    """The rules of a stack of BERT's layers."""
    return (
        *linear(f"{ours}/attention/query", f"{theirs}.attention.self.query"),
        *linear(f"{ours}/attention/key", f"{theirs}.attention.self.key"),
        *linear(f"{ours}/attention/value", f"{theirs}.attention.self.value"),
        *linear(f"{ours}/attention/out", f"{theirs}.attention.output.dense", KERNEL_OUT),
        *norm(f"{ours}/attention_norm", f"{theirs}.attention.output.LayerNorm"),
        *linear(f"{ours}/mlp/up", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}/mlp/down", f"{theirs}.output.dense"),
        *norm(f"{ours}/mlp_norm", f"{theirs}.output.LayerNorm"),
    )


def encoder(name):
    """The rules of an encoder with embeddings and pooler, which BERT and its heirs hold under their own `name`."""
    return (
        (f"{name}/embeddings/words/embedding", f"{name}.embeddings.word_embeddings.weight", SAME),
        (
            f"{name}/embeddings/positions/embedding",
            f"{name}.embeddings.position_embeddings.weight",
            SAME,
        ),
        (
            f"{name}/embeddings/segments/embedding",
            f"{name}.embeddings.token_type_embeddings.weight",
            SAME,
        ),
        *norm(f"{name}/embeddings/norm", f"{name}.embeddings.LayerNorm"),
        *layers(f"{name}/encoder/layers", f"{name}.encoder.layer.{{i}}"),
        *linear(f"{name}/pooler", f"{name}.pooler.dense"),
    )


RULES = (
    *encoder("bert"),
    *linear("word/transform", "cls.predictions.transform.dense"),
    *norm("word/norm", "cls.predictions.transform.LayerNorm"),
    ("word/bias", "cls.predictions.bias", SAME),
    *linear("next", "cls.seq_relationship"),
)
HEADS = (
    "bert.pooler.",
    "cls.predictions.",
    "cls.seq_relationship.",
)  # released encoders come without some of them
COPIES = {  # the output's table is the input's; older files hold it twice
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
BUFFERS = (
    "bert.embeddings.position_ids",
    "bert.embeddings.token_type_ids",
)  # 0, 1, 2 ... and zeros

FIELDS = (  # our field, their key, what an absent key means
    ("vocab", "vocab_size", 30522),
    ("length", "max_position_embeddings", 512),
    ("segments", "type_vocab_size", 2),
    ("width", "hidden_size", 768),
    ("depth", "num_hidden_layers", 12),
    ("heads", "num_attention_heads", 12),
    ("mlp", "intermediate_size", 3072),
    ("dropout", "hidden_dropout_prob", 0.1),
    ("attention_dropout", "attention_probs_dropout_prob", 0.1),
    ("epsilon", "layer_norm_eps", 1e-12),
)
FIXED = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    return name_map.export(params, RULES, {"bert/encoder": config.depth})


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a BERT with all heads, some or none.

    A missing head stays as initialised. Raises ValueError that names what is missing, has no place, or has the wrong
    shape or type.
    """
    tensors = name_map.merge_copies(name_map.rename(tensors, modern("bert", tensors)), COPIES)
    return name_map.fill(
        tensors,
        RULES,
        {"bert/encoder": config.depth},
        init_params,
        heads=HEADS,
        body=("bert.",),
        known=BUFFERS,
    )


def modern(name, tensors):
    """From a name among `tensors` to today's: some are of a bare encoder, without its prefix; some are of 2018."""
    prefixed = any(each.startswith(f"{name}.") for each in tensors)

    def renamed(each):
        each = (
            each
            if prefixed or not each.startswith(("embeddings.", "encoder.", "pooler."))
            else f"{name}.{each}"
        )
        return each.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        )

    return renamed


def hf_config(config, vocabulary):
    """The dict of config.json."""
    return {
        "architectures": ["BertForPreTraining"],
        **config_fields.write(config, FIELDS, FIXED),
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The BertConfig of a config.json. Raises ValueError that names a setting that BertForPretraining does not have."""
    return BertConfig(**config_fields.read(hf_config, BertConfig, FIELDS, FIXED))
