"""GPT-2 under both its names: models/gpt2.py and `GPT2LMHeadModel` of Hugging Face transformers; and a GPT-3 that is one."""

from models.config import Gpt2Config, Gpt3Config
from pretrain.convert import config_fields, gpt, name_map
from pretrain.families.rules import SAME, Index, norm

WORDS = "transformer.wte.weight"
OUTSIDE_LAYERS = (
    ("embeddings/words/embedding", WORDS, SAME),
    ("embeddings/positions/embedding", "transformer.wpe.weight", SAME),
    *norm("norm", "transformer.ln_f"),
)
RULES = OUTSIDE_LAYERS + gpt.layer("decoder/layers", "transformer.h.{i}")
PAIRS = (  # of GPT-3's layers: the first is dense, the second banded
    OUTSIDE_LAYERS
    + gpt.layer("decoder/layers/dense", f"transformer.h.{Index(0, 2)}")
    + gpt.layer("decoder/layers/banded", f"transformer.h.{Index(1, 2)}")
)

FIELDS = (  # our field, their key, what an absent key means
    ("vocab", "vocab_size", 50257),
    ("length", "n_positions", 1024),
    ("width", "n_embd", 768),
    ("depth", "n_layer", 12),
    ("heads", "n_head", 12),
    ("mlp", "n_inner", None),
    ("dropout", "resid_pdrop", 0.1),
    ("attention_dropout", "attn_pdrop", 0.1),
    ("epsilon", "layer_norm_epsilon", 1e-5),
)
FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds. Raises ValueError for a GPT-3 with bands: see `check_bands`."""
    if isinstance(config, Gpt3Config):
        check_bands(config)
        return name_map.export(params, PAIRS, {"decoder": config.depth // 2})
    return name_map.export(params, RULES, {"decoder": config.depth})


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a GPT-2, with or without a head.

    Raises ValueError that names what is missing, has no place, or has the wrong shape or type.
    """
    return gpt.fill(config, tensors, RULES, init_params, words=WORDS)


def hf_config(config, vocabulary):
    """The dict of config.json. Raises ValueError for a GPT-3 with bands: see `check_bands`."""
    if isinstance(config, Gpt3Config):
        check_bands(config)
    return {
        "architectures": ["GPT2LMHeadModel"],
        **config_fields.write(config, FIELDS, FIXED),
        "embd_pdrop": config.dropout,
        "initializer_range": 0.02,
        "bos_token_id": vocabulary.eos,
        "eos_token_id": vocabulary.eos,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The Gpt2Config of a config.json. Raises ValueError that names a setting that Gpt2 does not have."""
    hf_config = config_fields.present(hf_config)
    hf_config.setdefault("n_inner", 4 * hf_config.get("n_embd", 768))
    return Gpt2Config(
        **config_fields.read(hf_config, Gpt2Config, FIELDS, FIXED | gpt.one_dropout(hf_config))
    )


def check_bands(config):
    """Raise ValueError unless each band of a GPT-3 is as long as its rows: then, and only then, it is a GPT-2."""
    if config.window < config.length:
        raise ValueError(
            f"a GPT-3 with bands of {config.window} positions (model.window) in rows of {config.length} cannot be exported: transformers "
            "has no model with GPT-2's layers, some of them banded. A window as long as the rows is a GPT-2 and can be"
        )
