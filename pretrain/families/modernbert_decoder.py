"""ModernBERT's decoder twin, and `ModernBertDecoderForCausalLM` of Hugging Face transformers."""

from __future__ import annotations

from functools import partial

from data.objectives.causal_lm import CausalLm
from models.config.modernbert_decoder import ModernBertDecoderConfig
from pretrain.families import gpt, modernbert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.rules import Rules, map_scores
from pretrain.families.tensor_steps import add_prefix, tie


def map_projections(ours: str, theirs: str) -> Rules:
    """Return the rules of queries, keys and values, which have a matrix each."""
    parts = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
    return tuple(
        rule
        for part, name in parts.items()
        for rule in map_scores(f"{ours}/{part}", f"{theirs}.{name}")
    )


def make_import_objective(config: ModernBertDecoderConfig) -> CausalLm:
    """Return the objective of an imported decoder: rows of 1,024 tokens, as Ettin begins."""
    return CausalLm(length=min(1024, config.length))


FAMILY = Family(
    name="modernbert_decoder",
    config=ModernBertDecoderConfig,
    extends=("modernbert", "gpt"),
    objectives=(CausalLm,),
    make_import_objective=make_import_objective,
    predictor="text_generation:ContinuationWriter",
    title="ModernBERT decoder",
    task="text-generation",
    token_roles=("pad", "sep"),
    template="none",
    twin="modernbert",
    same_to_tile=("global_every",),
    hugging_face=HuggingFaceMap(
        model_type="modernbert-decoder",
        architecture="ModernBertDecoderForCausalLM",
        rules=partial(modernbert.make_rules, map_projections=map_projections, head="lm_head"),
        stacks={"encoder": "num_groups"},
        body=("model.",),
        heads=("lm_head.", "decoder."),
        before_import=(
            add_prefix("model.", ("embeddings.", "layers.", "final_norm.")),
            tie({"decoder.weight": modernbert.WORDS}),
        ),
        keys=modernbert.SHARED_KEYS,
        settings=modernbert.describe_settings,
        prepare=modernbert.fill_older_keys,
        head_map=HeadMap(
            prefix="ModernBertDecoder",
            classes=gpt.LACKING,
            rules={
                "ForSequenceClassification": (
                    *map_scores("classifier/out", "classifier"),
                    *modernbert.map_head("head"),
                )
            },
            dropout=("classifier_dropout", 0.0),
            shared=("head.",),
        ),
    ),
)
