"""Music Transformer: models/music_transformer.py. transformers opens it with a file of the export.

The file is remote_code/music_transformer.py, whose names are below.
"""

from data.objectives.causal_lm import CausalLm
from models.config.music_transformer import MusicTransformerConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import Key
from pretrain.families.remote_code import describe_code, name_code
from pretrain.families.rules import (
    KERNEL,
    KERNEL_OUT,
    SAME,
    Rules,
    map_linear,
    map_norm,
)

NAME = "music_transformer"
OURS, THEIRS = "decoder/layers", "layers.{i}"
RULES = (
    ("token_embedding/embedding", "token_embedding.weight", SAME),
    *map_norm("norm", "norm"),
    *(
        (f"{OURS}/attention/{name}/kernel", f"{THEIRS}.attention.{name}.weight", layout)
        for name, layout in (
            *dict.fromkeys(("query", "key", "value"), KERNEL).items(),
            ("out", KERNEL_OUT),
        )
    ),
    *map_norm(f"{OURS}/attention_norm", f"{THEIRS}.attention_norm"),
    *map_linear(f"{OURS}/mlp/up", f"{THEIRS}.up"),
    *map_linear(f"{OURS}/mlp/down", f"{THEIRS}.down"),
    *map_norm(f"{OURS}/mlp_norm", f"{THEIRS}.mlp_norm"),
)
OF_DISTANCES = (
    f"{OURS}/attention/relative_embedding",
    f"{THEIRS}.attention.relative_embedding",
    SAME,
)
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 390),
    Key("width", "hidden_size", 256),
    Key("depth", "num_hidden_layers", 6),
    Key("num_heads", "num_attention_heads", 8),
    Key("head_width", "head_dim", 64),
    Key("mlp", "intermediate_size", 1024),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("epsilon", "layer_norm_eps", 1e-5),
    Key("relative", "relative", True),
    Key("max_distance", "max_distance", 1024),
)


def make_rules(config: MusicTransformerConfig) -> Rules:
    """Return the rules of a configuration."""
    return (*RULES, OF_DISTANCES) if config.relative else RULES


FAMILY = Family(
    name=NAME,
    config=MusicTransformerConfig,
    objectives=(CausalLm,),
    make_import_objective=lambda config: CausalLm(length=config.max_distance),
    predictor="text_generation:ContinuationWriter",
    title="Music Transformer",
    task="text-generation",
    token_roles=("eos",),
    template="none",
    describe_card_rows=lambda config: [
        (
            "attention",
            f"relative, {config.max_distance} distances" if config.relative else "absolute",
        )
    ],
    hugging_face=HuggingFaceMap(
        model_type=NAME,
        architecture="MusicTransformerForCausalLM",
        rules=make_rules,
        stacks={"decoder": "depth"},
        body=("token_embedding.", "layers.", "norm."),
        keys=KEYS,
        settings=describe_code(
            NAME,
            AutoConfig="MusicTransformerConfig",
            AutoModel="MusicTransformerModel",
            AutoModelForCausalLM="MusicTransformerForCausalLM",
        ),
        code=name_code(NAME),
    ),
)
