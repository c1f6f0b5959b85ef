"""BERT under both its names: models/bert.py and `BertForPreTraining` of Hugging Face transformers."""

from models.config import BertConfig
from pretrain.convert import settings, table
from pretrain.convert.table import KERNEL_OUT, SAME, linear, norm

OURS, THEIRS = "bert/encoder/layers", "bert.encoder.layer.{i}"

RULES = (
    ("bert/embeddings/words/embedding", "bert.embeddings.word_embeddings.weight", SAME),
    ("bert/embeddings/positions/embedding", "bert.embeddings.position_embeddings.weight", SAME),
    ("bert/embeddings/segments/embedding", "bert.embeddings.token_type_embeddings.weight", SAME),
    *norm("bert/embeddings/norm", "bert.embeddings.LayerNorm"),
    *linear(f"{OURS}/attention/query", f"{THEIRS}.attention.self.query"),
    *linear(f"{OURS}/attention/key", f"{THEIRS}.attention.self.key"),
    *linear(f"{OURS}/attention/value", f"{THEIRS}.attention.self.value"),
    *linear(f"{OURS}/attention/out", f"{THEIRS}.attention.output.dense", KERNEL_OUT),
    *norm(f"{OURS}/attention_norm", f"{THEIRS}.attention.output.LayerNorm"),
    *linear(f"{OURS}/mlp/up", f"{THEIRS}.intermediate.dense"),
    *linear(f"{OURS}/mlp/down", f"{THEIRS}.output.dense"),
    *norm(f"{OURS}/mlp_norm", f"{THEIRS}.output.LayerNorm"),
    *linear("bert/pooler", "bert.pooler.dense"),
    *linear("word/transform", "cls.predictions.transform.dense"),
    *norm("word/norm", "cls.predictions.transform.LayerNorm"),
    ("word/bias", "cls.predictions.bias", SAME),
    *linear("next", "cls.seq_relationship"),
)
HEADS = ("bert.pooler.", "cls.predictions.", "cls.seq_relationship.")  # released encoders come without some of them
COPIES = {  # the output's table is the input's; older files hold it twice
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")  # 0, 1, 2 ... and zeros

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
    return table.export(params, RULES, {"bert/encoder": config.depth})


def from_hf(config, tensors, init_params):
    """(parameters, table.Report) from {name: array} of a BERT with all heads, some or none.

    A missing head stays as initialised. Raises ValueError that names what is missing, has no place, or has the wrong
    shape or type.
    """
    prefixed = any(name.startswith("bert.") for name in tensors)  # a bare BertModel has no prefix

    def modern(name):
        name = name if prefixed or not name.startswith(("embeddings.", "encoder.", "pooler.")) else f"bert.{name}"
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    tensors = table.merge_copies(table.rename(tensors, modern), COPIES)
    return table.fill(
        tensors, RULES, {"bert/encoder": config.depth}, init_params, heads=HEADS, body=("bert.",), known=BUFFERS
    )


def hf_config(config, vocabulary):
    """The dict of config.json."""
    return {
        "architectures": ["BertForPreTraining"],
        **settings.write(config, FIELDS, FIXED),
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The BertConfig of a config.json. Raises ValueError that names a setting that BertForPretraining does not have."""
    return BertConfig(**settings.read(hf_config, BertConfig, FIELDS, FIXED))
