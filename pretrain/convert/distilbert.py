"""DistilBERT under both its names: models/distilbert.py, without its teacher, and `DistilBertForMaskedLM` of Hugging Face transformers."""

from models.config import DistilBertConfig
from pretrain.convert import config_fields, name_map
from pretrain.families.rules import KERNEL_OUT, SAME, linear, norm


def layers(ours, theirs):
    return (
        *linear(f"{ours}/attention/query", f"{theirs}.attention.q_lin"),
        *linear(f"{ours}/attention/key", f"{theirs}.attention.k_lin"),
        *linear(f"{ours}/attention/value", f"{theirs}.attention.v_lin"),
        *linear(f"{ours}/attention/out", f"{theirs}.attention.out_lin", KERNEL_OUT),
        *norm(f"{ours}/attention_norm", f"{theirs}.sa_layer_norm"),
        *linear(f"{ours}/mlp/up", f"{theirs}.ffn.lin1"),
        *linear(f"{ours}/mlp/down", f"{theirs}.ffn.lin2"),
        *norm(f"{ours}/mlp_norm", f"{theirs}.output_layer_norm"),
    )


RULES = (
    ("student/embeddings/words/embedding", "distilbert.embeddings.word_embeddings.weight", SAME),
    (
        "student/embeddings/positions/embedding",
        "distilbert.embeddings.position_embeddings.weight",
        SAME,
    ),
    *norm("student/embeddings/norm", "distilbert.embeddings.LayerNorm"),
    *layers("student/encoder/layers", "distilbert.transformer.layer.{i}"),
    *linear("student/word/transform", "vocab_transform"),
    *norm("student/word/norm", "vocab_layer_norm"),
    ("student/word/bias", "vocab_projector.bias", SAME),
)
HEADS = ("vocab_transform.", "vocab_layer_norm.", "vocab_projector.")
COPIES = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
BUFFERS = ("distilbert.embeddings.position_ids",)

FIELDS = (  # our field, their key, what an absent key means
    ("vocab", "vocab_size", 30522),
    ("length", "max_position_embeddings", 512),
    ("width", "dim", 768),
    ("depth", "n_layers", 6),
    ("heads", "n_heads", 12),
    ("mlp", "hidden_dim", 3072),
    ("dropout", "dropout", 0.1),
    ("attention_dropout", "attention_dropout", 0.1),
)
FIXED = {
    "model_type": "distilbert",
    "activation": "gelu",
    "sinusoidal_pos_embds": False,
    "tie_word_embeddings": True,
}
EPSILON = 1e-12  # of their norms; no setting of theirs


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    return name_map.export({"student": params["student"]}, RULES, {"student/encoder": config.depth})


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a DistilBERT with or without its head for words.

    What is missing of the head stays as initialised. Raises ValueError that names what is missing otherwise, has no place, or has the
    wrong shape or type.
    """
    tensors = name_map.merge_copies(tensors, COPIES)
    return name_map.fill(
        tensors,
        RULES,
        {"student/encoder": config.depth},
        init_params,
        heads=HEADS,
        body=("distilbert.",),
        known=BUFFERS,
    )


def hf_config(config, vocabulary):
    """The dict of config.json. Raises ValueError for norms that transformers cannot be told of."""
    if config.epsilon != EPSILON:
        raise ValueError(
            f"model.epsilon={config.epsilon:g} cannot be exported: DistilBertForMaskedLM's norms have {EPSILON:g}"
        )
    return {
        "architectures": ["DistilBertForMaskedLM"],
        **config_fields.write(config, FIELDS, FIXED),
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The DistilBertConfig of a config.json, without a teacher. Raises ValueError that names a setting that DistilBERT does not have here."""
    return DistilBertConfig(
        **config_fields.read(hf_config, DistilBertConfig, FIELDS, FIXED),
        teacher_depth=None,
        epsilon=EPSILON,
    )
