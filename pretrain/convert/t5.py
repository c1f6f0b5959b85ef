"""T5 and T5 v1.1 under both their names: models/t5.py and `T5ForConditionalGeneration` of Hugging Face transformers."""

from models.config import T5Config
from pretrain.convert import config_fields, name_map
from pretrain.families.rules import KERNEL, KERNEL_OUT, SAME

ACTIVATIONS = {"relu": False, "gated-gelu": True}  # their feed_forward_proj: our `gated`


def attention(ours, theirs):
    """The four kernels of an attention."""
    kernels = (
        ("query", "q", KERNEL),
        ("key", "k", KERNEL),
        ("value", "v", KERNEL),
        ("out", "o", KERNEL_OUT),
    )
    return tuple(
        (f"{ours}/{name}/kernel", f"{theirs}.{letter}.weight", layout)
        for name, letter, layout in kernels
    )


def mlp(ours, theirs, gated):
    """The two kernels of an MLP, or the three of a gated one."""
    names = (
        (("gate", "wi_0"), ("up", "wi_1"), ("down", "wo"))
        if gated
        else (("up", "wi"), ("down", "wo"))
    )
    return tuple(
        (f"{ours}/{name}/kernel", f"{theirs}.{letters}.weight", KERNEL) for name, letters in names
    )


def stack(name, config, *, cross):
    """The rules of the encoder or of the decoder, whose layers have one more part."""
    ours, theirs = f"{name}/layers", f"{name}.block.{{i}}.layer"
    bias = f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    last = 2 if cross else 1
    rules = (
        (f"{name}_bias/table", bias, SAME),
        *attention(f"{ours}/attention", f"{theirs}.0.SelfAttention"),
        (f"{ours}/attention_norm/scale", f"{theirs}.0.layer_norm.weight", SAME),
        *mlp(f"{ours}/mlp", f"{theirs}.{last}.DenseReluDense", config.gated),
        (f"{ours}/mlp_norm/scale", f"{theirs}.{last}.layer_norm.weight", SAME),
        (f"{name}_norm/scale", f"{name}.final_layer_norm.weight", SAME),
    )
    crossing = (
        *attention(f"{ours}/cross", f"{theirs}.1.EncDecAttention"),
        (f"{ours}/cross_norm/scale", f"{theirs}.1.layer_norm.weight", SAME),
    )
    return rules + crossing if cross else rules


def rules(config):
    """The table of a T5, which depends on what its MLPs and its output are."""
    return (
        ("words/embedding", "shared.weight", SAME),
        *stack("encoder", config, cross=False),
        *stack("decoder", config, cross=True),
        *(() if config.tied else (("head/kernel", "lm_head.weight", KERNEL),)),
    )


def depths(config):
    return {"encoder": config.depth, "decoder": config.decoder_depth}


COPIES = {
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.embed_tokens.weight": "shared.weight",
}
# The first releases hold one more table, which their own code no longer reads.
KNOWN = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)

FIELDS = (  # our field, their key, what an absent key means
    ("vocab", "vocab_size", 32128),
    ("width", "d_model", 512),
    ("depth", "num_layers", 6),
    ("decoder_depth", "num_decoder_layers", None),
    ("heads", "num_heads", 8),
    ("head_width", "d_kv", 64),
    ("mlp", "d_ff", 2048),
    ("buckets", "relative_attention_num_buckets", 32),
    ("max_distance", "relative_attention_max_distance", 128),
    ("dropout", "dropout_rate", 0.1),
    ("epsilon", "layer_norm_epsilon", 1e-6),
)
FIXED = {
    "model_type": "t5",
    "is_encoder_decoder": True,
    "is_decoder": False,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,  # what models/t5.py shifts in
}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    return name_map.export(params, rules(config), depths(config))


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a T5 with encoder and decoder.

    An output table that is missing is the input's, as in transformers. Raises ValueError that names what is missing,
    has no place, or has the wrong shape or type.
    """
    tensors = name_map.merge_copies(
        tensors, COPIES | ({"lm_head.weight": "shared.weight"} if config.tied else {})
    )
    if not config.tied and "lm_head.weight" not in set(tensors):
        tensors = name_map.Renamed(
            tensors, {name: name for name in tensors} | {"lm_head.weight": "shared.weight"}
        )
    body = ("shared.", "encoder.", "decoder.", "lm_head.")
    return name_map.fill(
        tensors, rules(config), depths(config), init_params, heads=(), body=body, known=KNOWN
    )


def hf_config(config, vocabulary):
    """The dict of config.json. Raises ValueError unless the vocabulary pads with id 0, as the decoder begins."""
    if vocabulary.pad != 0:
        raise ValueError(
            f"T5's decoder begins with the padding id, which must be 0; this vocabulary's is {vocabulary.pad}"
        )
    return {
        "architectures": ["T5ForConditionalGeneration"],
        **config_fields.write(config, FIELDS, FIXED),
        "feed_forward_proj": next(
            name for name, gated in ACTIVATIONS.items() if gated == config.gated
        ),
        "tie_word_embeddings": config.tied,
        "initializer_factor": 1.0,
        "eos_token_id": vocabulary.eos,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The T5Config of a config.json. Raises ValueError that names a setting that T5 does not have here."""
    hf_config = config_fields.present(hf_config)
    hf_config.setdefault("num_decoder_layers", hf_config.get("num_layers", 6))
    activation = hf_config.get("feed_forward_proj", "relu")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"feed_forward_proj is {activation!r}; T5Config knows {' and '.join(ACTIVATIONS)}"
        )
    # transformers 5 writes tie_word_embeddings = true always, and beside it what is really meant.
    tied = hf_config.get("scale_decoder_outputs", hf_config.get("tie_word_embeddings", True))
    fields = config_fields.read(hf_config, T5Config, FIELDS, FIXED)
    return T5Config(**fields, gated=ACTIVATIONS[activation], tied=bool(tied))
