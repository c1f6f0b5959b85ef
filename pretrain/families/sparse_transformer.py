"""The Sparse Transformer: models/sparse_transformer.py. An export's file opens it elsewhere.

The file is remote_code/sparse_transformer.py, whose names are below.
"""

from data.objectives.causal_lm import CausalLm
from models.config.sparse_transformer import SparseTransformerConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import Key
from pretrain.families.remote_code import describe_code, name_code
from pretrain.families.rules import SAME, Rules, map_layer, map_norm, map_scores

NAME = "sparse_transformer"
TABLES = ("token_embedding", "row_embedding", "column_embedding")
RULES = (
    *((f"embeddings/{name}/embedding", f"{name}.weight", SAME) for name in TABLES),
    *map_norm("norm", "norm"),
    *map_scores("lm_head", "head"),
)
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 256),
    Key("length", "max_position_embeddings", 12_288),
    Key("width", "hidden_size", 512),
    Key("depth", "num_hidden_layers", 30),
    Key("num_heads", "num_attention_heads", 8),
    Key("mlp", "intermediate_size", 2_048),
    Key("dropout", "hidden_dropout_prob", 0.4),
    Key("epsilon", "layer_norm_eps", 1e-5),
    Key("pattern", "pattern", "fixed"),
    Key("stride", "stride", 128),
    Key("summary", "summary", 32),
    Key("subblocks", "subblocks", 4),
    Key("merged", "merged", True),
)


def map_layers(ours: str, theirs: str) -> Rules:
    """Return the rules of a stack of pre-norm layers."""
    return map_layer(
        ours,
        theirs,
        query="attention.query",
        key="attention.key",
        value="attention.value",
        out="attention.out",
        attention_norm="attention_norm",
        up="up",
        down="down",
        mlp_norm="mlp_norm",
    )


def make_rules(config: SparseTransformerConfig) -> Rules:
    """Return the rules of a configuration; two layers of ours are one where patterns alternate."""
    if config.merged:
        return (*RULES, *map_layers("decoder/layers", "layers.{i}"))
    return (
        *RULES,
        *map_layers("decoder/layers/first", "layers.{2*i}"),
        *map_layers("decoder/layers/second", "layers.{1 + 2*i}"),
    )


FAMILY = Family(
    name=NAME,
    config=SparseTransformerConfig,
    objectives=(CausalLm,),
    make_import_objective=lambda config: CausalLm(length=config.length),
    predictor="text_generation:ContinuationWriter",
    title="Sparse Transformer",
    task="text-generation",
    token_roles=("eos",),
    template="none",
    describe_card_rows=lambda config: [
        ("attention", f"{config.pattern} pattern, stride {config.stride}")
    ],
    hugging_face=HuggingFaceMap(
        model_type=NAME,
        architecture="SparseTransformerForCausalLM",
        rules=make_rules,
        stacks={"decoder": "num_stacked"},
        body=(*(f"{name}." for name in TABLES), "layers.", "norm."),
        heads=("head.",),
        keys=KEYS,
        settings=describe_code(
            NAME,
            AutoConfig="SparseTransformerConfig",
            AutoModel="SparseTransformerModel",
            AutoModelForCausalLM="SparseTransformerForCausalLM",
        ),
        code=name_code(NAME),
    ),
)
