"""GPT-BERT: models/gpt_bert.py. Hugging Face transformers opens it with a file of the export.

The file is remote_code/gpt_bert.py, whose names are below.
"""

from data.objectives.causal_lm import CausalLm
from data.objectives.masked_next_token import MaskedNextToken
from models.config.gpt_bert import GptBertConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import Key
from pretrain.families.remote_code import describe_code, name_code
from pretrain.families.rules import KERNEL_OUT, SAME, map_linear, map_norm, map_scores

NAME = "gpt_bert"
OURS, THEIRS = "decoder/layers", "layers.{i}"
RULES = (
    ("token_embedding/embedding", "token_embedding.weight", SAME),
    ("relative_embedding/embedding", "relative_embedding.weight", SAME),
    *map_norm("relative_norm", "relative_norm"),
    *(
        rule
        for part in ("query", "key", "value", "gate")
        for rule in map_linear(f"{OURS}/attention/{part}", f"{THEIRS}.attention.{part}")
    ),
    *map_linear(f"{OURS}/attention/out", f"{THEIRS}.attention.out", KERNEL_OUT),
    (f"{OURS}/attention_mix", f"{THEIRS}.attention_mix", SAME),
    *(
        rule
        for part in ("gate", "up", "down")
        for rule in map_scores(f"{OURS}/mlp/{part}", f"{THEIRS}.mlp.{part}")
    ),
    (f"{OURS}/mlp_mix", f"{THEIRS}.mlp_mix", SAME),
    *map_linear("mlm_head/transform", "head.transform"),
    ("mlm_head/bias", "head.bias", SAME),
)
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 16384),
    Key("length", "max_position_embeddings", 512),
    Key("width", "hidden_size", 768),
    Key("depth", "num_hidden_layers", 12),
    Key("num_heads", "num_attention_heads", 12),
    Key("mlp", "intermediate_size", 2560),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("epsilon", "layer_norm_eps", 1e-5),
    Key("buckets", "position_bucket_size", 32),
    Key("max_distance", "max_distance", lambda theirs: theirs.get("max_position_embeddings", 512)),
)


FAMILY = Family(
    name=NAME,
    config=GptBertConfig,
    extends=("gpt", "bert"),
    objectives=(CausalLm, MaskedNextToken),
    make_import_objective=lambda config: CausalLm(length=config.length),
    predictor="text_generation:ContinuationWriter",
    title="GPT-BERT",
    task="text-generation",
    token_roles=("eos",),
    template="none",
    hugging_face=HuggingFaceMap(
        model_type=NAME,
        architecture="GptBertForCausalLM",
        rules=RULES,
        stacks={"decoder": "depth"},
        body=("token_embedding.", "relative_", "layers."),
        heads=("head.",),
        keys=KEYS,
        settings=describe_code(
            NAME,
            {"predicts_next": True},
            AutoConfig="GptBertConfig",
            AutoModel="GptBertModel",
            AutoModelForCausalLM="GptBertForCausalLM",
            AutoModelForMaskedLM="GptBertForMaskedLM",
        ),
        code=name_code(NAME),
    ),
)
