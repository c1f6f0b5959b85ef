"""BERT: models/bert.py, and `BertForPreTraining` of Hugging Face transformers."""

from data.objectives.masked_lm import MaskedLm
from data.objectives.sentence_pair import SentencePair
from models.config.base import EncoderConfig
from models.config.bert import BertConfig
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import EXACT_GELU, Fixed, Key
from pretrain.families.rules import (
    SAME,
    Rules,
    map_embeddings,
    map_layer,
    map_linear,
    map_norm,
)
from pretrain.families.tensor_steps import Step, add_prefix, rename, tie

TABLES = {
    "token_embedding": "word_embeddings",
    "position_embedding": "position_embeddings",
    "token_type_embedding": "token_type_embeddings",
}


def map_layers(ours: str, theirs: str) -> Rules:
    """Return the rules of a stack of BERT's layers."""
    return map_layer(
        ours,
        theirs,
        query="attention.self.query",
        key="attention.self.key",
        value="attention.self.value",
        out="attention.output.dense",
        attention_norm="attention.output.LayerNorm",
        up="intermediate.dense",
        down="output.dense",
        mlp_norm="output.LayerNorm",
    )


def map_encoder(name: str) -> Rules:
    """Return the rules of an encoder with embeddings and pooler, under a family's own `name`."""
    return (
        *map_embeddings(f"{name}/embeddings", f"{name}.embeddings", **TABLES),
        *map_layers(f"{name}/encoder/layers", f"{name}.encoder.layer.{{i}}"),
        *map_linear(f"{name}/pooler", f"{name}.pooler.dense"),
    )


def map_mlm_head(ours: str, dense: str, norm_name: str, bias: str) -> Rules:
    """Map the masked-LM head, whose output weights are tied to the embeddings.

    ours: our path. dense, norm_name, bias: their names.
    """
    return (
        *map_linear(f"{ours}/transform", dense),
        *map_norm(f"{ours}/norm", norm_name),
        (f"{ours}/bias", bias, SAME),
    )


RULES = (
    *map_encoder("bert"),
    *map_mlm_head(
        "mlm_head",
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    *map_linear("next_sentence_head", "cls.seq_relationship"),
)
SENTENCE_HEADS = ("bert.pooler.", "cls.seq_relationship.")
HEADS = ("cls.predictions.", *SENTENCE_HEADS)  # released encoders lack some of them
COPIES = {  # output and input share a table; older files have it twice
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def update_names(prefix: str) -> tuple[Step, ...]:
    """Return the steps that name the tensors of an old file, or of an encoder without heads."""
    return (
        add_prefix(prefix, ("embeddings.", "encoder.", "pooler.")),
        rename(("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")),
    )


def list_buffers(name: str) -> tuple[str, ...]:
    """Return the names that hold 0, 1, 2 ... and zeros."""
    return f"{name}.embeddings.position_ids", f"{name}.embeddings.token_type_ids"


SIZES = (  # our field, their key, the meaning of an absent key
    Key("segments", "type_vocab_size", 2),
    Key("width", "hidden_size", 768),
    Key("depth", "num_hidden_layers", 12),
    Key("num_heads", "num_attention_heads", 12),
    Key("mlp", "intermediate_size", 3072),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("epsilon", "layer_norm_eps", 1e-12),
)
FIXED = (
    Fixed("hidden_act", "gelu", also=EXACT_GELU),
    Fixed("position_embedding_type", "absolute"),
    Fixed("is_decoder", False),
    Fixed("add_cross_attention", False),
    Fixed("tie_word_embeddings", True),
)
KEYS = (
    Key("vocab", "vocab_size", 30522),
    Key("length", "max_position_embeddings", 512),
    *SIZES,
    *FIXED,
)


def import_masked_lm(config: EncoderConfig) -> MaskedLm:
    """Return the objective of an imported encoder: masked LM on rows of 128 tokens."""
    length = min(128, config.length)
    return MaskedLm(length=length, max_predictions=max(1, length * 20 // 128))


FAMILY = Family(
    name="bert",
    config=BertConfig,
    objectives=(MaskedLm, SentencePair),
    make_import_objective=import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="BERT encoder",
    task="fill-mask",
    untrained_parts="the pooler and the next-sentence head",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    token_types=True,
    hugging_face=HuggingFaceMap(
        model_type="bert",
        architecture="BertForPreTraining",
        rules=RULES,
        stacks={"bert/encoder": "depth"},
        body=("bert.",),
        heads=HEADS,
        sentence_heads=SENTENCE_HEADS,
        before_import=(*update_names("bert."), tie(COPIES)),
        buffers=list_buffers("bert"),
        keys=KEYS,
        head_map=HeadMap(prefix="Bert", pooler="bert.pooler.dense"),
    ),
)
