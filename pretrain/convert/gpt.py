"""GPT under both its names: models/gpt.py and `OpenAIGPTLMHeadModel` of Hugging Face transformers.

Their first layers are GPT-2's too, and so is their way of keeping queries, keys and values in one matrix, `c_attn`.
"""

from models.config import GptConfig
from pretrain.convert import config_fields, name_map
from pretrain.families.rules import JOINED, SAME, Join, Layout, norm

# Their kernels are [in, out], as ours are.
STRAIGHT = Layout(
    theirs=lambda a: a.reshape(a.shape[0], -1), ours=lambda a, shape: a.reshape(shape)
)
STRAIGHT_OUT = Layout(
    theirs=lambda a: a.reshape(-1, a.shape[-1]), ours=lambda a, shape: a.reshape(shape)
)
FUSED = ("query", "key", "value")  # in c_attn, along its last axis, in this order


def linear(ours, theirs, layout=STRAIGHT):
    """The two rules of a linear map with a bias."""
    return (f"{ours}/kernel", f"{theirs}.weight", layout), (
        f"{ours}/bias",
        f"{theirs}.bias",
        JOINED,
    )


def layer(ours, theirs):
    """The rules of a layer, in which one matrix and one bias hold queries, keys and values."""
    attention, fused = f"{ours}/attention", f"{theirs}.attn.c_attn"
    return (
        (
            tuple(f"{attention}/{part}/kernel" for part in FUSED),
            f"{fused}.weight",
            Join(STRAIGHT, axis=1),
        ),
        (tuple(f"{attention}/{part}/bias" for part in FUSED), f"{fused}.bias", Join(JOINED)),
        *linear(f"{attention}/out", f"{theirs}.attn.c_proj", STRAIGHT_OUT),
        *norm(f"{ours}/attention_norm", f"{theirs}.ln_1"),
        *linear(f"{ours}/mlp/up", f"{theirs}.mlp.c_fc"),
        *linear(f"{ours}/mlp/down", f"{theirs}.mlp.c_proj"),
        *norm(f"{ours}/mlp_norm", f"{theirs}.ln_2"),
    )


def fill(config, tensors, rules, init_params, *, words):
    """What `name_map.fill` gives for {their name: array}; `words`: the name of the input's table, which is the output's too."""
    prefixed = any(
        name.startswith("transformer.") for name in tensors
    )  # a model without its head has no prefix
    tensors = name_map.rename(tensors, lambda name: name if prefixed else f"transformer.{name}")
    tensors = name_map.merge_copies(tensors, {"lm_head.weight": words})
    buffers = {
        f"transformer.h.{i}.attn.{name}"
        for i in range(config.depth)
        for name in ("bias", "masked_bias")
    }
    known = buffers | {"transformer.position_ids"}  # masks, and 0, 1, 2 ...
    return name_map.fill(
        tensors,
        rules,
        {"decoder": config.depth},
        init_params,
        heads=(),
        body=("transformer.", "lm_head."),
        known=known,
    )


WORDS = "transformer.tokens_embed.weight"
RULES = (
    ("embeddings/words/embedding", WORDS, SAME),
    ("embeddings/positions/embedding", "transformer.positions_embed.weight", SAME),
    *layer("decoder/layers", "transformer.h.{i}"),
)

FIELDS = (  # our field, their key, what an absent key means
    ("vocab", "vocab_size", 40478),
    ("length", "n_positions", 512),
    ("width", "n_embd", 768),
    ("depth", "n_layer", 12),
    ("heads", "n_head", 12),
    ("dropout", "resid_pdrop", 0.1),
    ("attention_dropout", "attn_pdrop", 0.1),
    ("epsilon", "layer_norm_epsilon", 1e-5),
)
FIXED = {
    "model_type": "openai-gpt",
    "afn": "gelu",  # their name for the tanh approximation
    "tie_word_embeddings": True,
}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    return name_map.export(params, RULES, {"decoder": config.depth})


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a GPT, with or without a head.

    Raises ValueError that names what is missing, has no place, or has the wrong shape or type.
    """
    return fill(config, tensors, RULES, init_params, words=WORDS)


def hf_config(config, vocabulary):
    """The dict of config.json. Raises ValueError for an MLP of another width than 4 times the model's, which theirs has not."""
    if config.mlp != 4 * config.width:
        raise ValueError(
            f"model.mlp={config.mlp}: an OpenAIGPTLMHeadModel has MLPs of 4 x {config.width} (model.width) and no others"
        )
    return {
        "architectures": ["OpenAIGPTLMHeadModel"],
        **config_fields.write(config, FIELDS, FIXED),
        "embd_pdrop": config.dropout,
        "initializer_range": 0.02,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The GptConfig of a config.json. Raises ValueError that names a setting that Gpt does not have."""
    fields = config_fields.read(hf_config, GptConfig, FIELDS, FIXED | one_dropout(hf_config))
    return GptConfig(**fields, mlp=4 * fields["width"])


def one_dropout(hf_config):
    """What `embd_pdrop` must be: ours has one rate for the embeddings and for what is added to the residual."""
    return {"embd_pdrop": hf_config.get("resid_pdrop", 0.1)}
