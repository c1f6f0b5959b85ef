"""ELECTRA: models/electra.py, and two models of Hugging Face transformers.

Theirs are `ElectraForPreTraining`, the discriminator, and `ElectraForMaskedLM`, the generator, in
two folders, each with a copy of the embeddings that are shared in ours.
"""

from collections.abc import Mapping
from typing import Any

from data.objectives.replaced_token import ReplacedToken
from models.config.electra import ElectraConfig
from pretrain.families import bert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap, SecondModel
from pretrain.families.key_rules import Key
from pretrain.families.rules import Rules, map_embeddings, map_linear
from pretrain.families.tensor_steps import copy, tie

EMBEDDINGS = map_embeddings("embeddings", "electra.embeddings", **bert.TABLES)
RULES = (
    *EMBEDDINGS,
    *bert.map_layers("discriminator/encoder/layers", "electra.encoder.layer.{i}"),
    *map_linear("discriminator_head/transform", "discriminator_predictions.dense"),
    *map_linear("discriminator_head/score", "discriminator_predictions.dense_prediction"),
    *bert.map_layers("generator/encoder/layers", "generator/electra.encoder.layer.{i}"),
    *bert.map_mlm_head(
        "mlm_head",
        "generator/generator_predictions.dense",
        "generator/generator_predictions.LayerNorm",
        "generator/generator_lm_head.bias",
    ),
)
# {the field with a network's width: the rules of the map from embeddings of another width}
PROJECTION_RULES = {
    "width": map_linear("discriminator/embedding_projection", "electra.embeddings_project"),
    "generator_width": map_linear(
        "generator/embedding_projection", "generator/electra.embeddings_project"
    ),
}
HEADS = (
    "discriminator_predictions.",
    "generator/generator_predictions.",
    "generator/generator_lm_head.",
    "generator/",  # a folder of the discriminator alone
)  # may be absent
SHARED = {f"generator/{name}": str(name) for _, name, _ in EMBEDDINGS}
COPIES = {  # output and input share a table; older files have it twice
    "generator/generator_lm_head.weight": "electra.embeddings.word_embeddings.weight",
    "generator/generator_predictions.bias": "generator/generator_lm_head.bias",
}
SHARED_KEYS = (  # our field, their key, the meaning of an absent key: small
    Key("vocab", "vocab_size", 30522),
    Key("length", "max_position_embeddings", 512),
    Key("segments", "type_vocab_size", 2),
    Key("embedding", "embedding_size", 128),
    Key("depth", "num_hidden_layers", 12),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("epsilon", "layer_norm_eps", 1e-12),
)
SIZES = (
    Key("width", "hidden_size", 256),
    Key("num_heads", "num_attention_heads", 4),
    Key("mlp", "intermediate_size", 1024),
)
GENERATOR_SIZES = tuple(size._replace(ours=f"generator_{size.ours}") for size in SIZES)


def make_rules(config: ElectraConfig) -> Rules:
    """Return the rules of an ELECTRA, which depend on the widths of its networks."""
    return RULES + tuple(
        rule
        for field, rows in PROJECTION_RULES.items()
        if getattr(config, field) != config.embedding
        for rule in rows
    )


def describe_absent_generator(discriminator: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of the generator of a discriminator whose folder has none.

    Its sizes are a third of the discriminator's, or a quarter if the number of heads has no third,
    as in the paper's three models (table 6).
    """
    sizes = {size.theirs: discriminator.get(size.theirs, size.absent) for size in SIZES}
    if any(type(size) is not int for size in sizes.values()):
        return dict(discriminator)  # the reader of the discriminator names the wrong size
    heads = sizes["num_attention_heads"]
    divisor = 3 if heads % 3 == 0 else 4 if heads % 4 == 0 else heads
    return {**discriminator, **{key: max(1, size // divisor) for key, size in sizes.items()}}


def import_replaced_token(config: ElectraConfig) -> ReplacedToken:
    """Return the objective of an imported model: replaced tokens in rows of 128 tokens."""
    length = min(128, config.length)
    return ReplacedToken(length=length, max_predictions=max(1, length * 20 // 128))


def describe_generator(config: ElectraConfig) -> list[tuple[str, str]]:
    """Return the row of a model card about the generator."""
    sizes = (
        f"{config.depth} layers, hidden size {config.generator_width}, "
        f"{config.generator_num_heads} heads, feed-forward {config.generator_mlp}"
    )
    return [("generator", f"{sizes}, in the folder `generator`; it reads the same embeddings")]


def map_hidden_head(transform: str, out: str) -> Rules:
    """Return the rules of a classification head with a hidden layer; their names."""
    return (
        *map_linear("classifier/transform", transform),
        *map_linear("classifier/scores/out", out),
    )


FAMILY = Family(
    name="electra",
    config=ElectraConfig,
    extends=("bert",),
    objectives=(ReplacedToken,),
    make_import_objective=import_replaced_token,
    predictor="fill_mask:ReplacementDetector",
    title="ELECTRA encoder and its generator",
    task="feature-extraction",
    describe_card_rows=describe_generator,
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    token_types=True,
    hugging_face=HuggingFaceMap(
        model_type="electra",
        architecture="ElectraForPreTraining",
        rules=make_rules,
        stacks={"discriminator/encoder": "depth", "generator/encoder": "depth"},
        body=("electra.",),
        heads=HEADS,
        before_import=(*bert.update_names("electra."), tie(SHARED | COPIES)),
        after_export=(copy(SHARED),),
        buffers=(
            *bert.list_buffers("electra"),
            *(f"generator/{name}" for name in bert.list_buffers("electra")),
        ),
        keys=(*SHARED_KEYS, *SIZES, *bert.FIXED),
        second_models={
            "generator": SecondModel(
                architecture="ElectraForMaskedLM",
                keys=(*SHARED_KEYS, *GENERATOR_SIZES, *bert.FIXED),
                describe_absent=describe_absent_generator,
            )
        },
        refused={
            "ElectraForMaskedLM": "a generator alone; import the folder of its "
            "ElectraForPreTraining, with this one in it as generator/"
        },
        head_map=HeadMap(
            prefix="Electra",
            rules={
                "ForSequenceClassification": map_hidden_head(
                    "classifier.dense", "classifier.out_proj"
                ),
                "ForMultipleChoice": map_hidden_head("sequence_summary.summary", "classifier"),
            },
            own_dropout={"ForMultipleChoice": ("summary_last_dropout", 0.1)},
            fixed={
                "ForMultipleChoice": {
                    "summary_type": "first",
                    "summary_use_proj": True,
                    "summary_activation": "gelu",
                }
            },
        ),
    ),
)
