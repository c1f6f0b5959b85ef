"""The Sparse Transformer: models/sparse_transformer.py. Hugging Face transformers has none."""

from data.objectives.causal_lm import CausalLm
from models.config.sparse_transformer import SparseTransformerConfig
from pretrain.families.family_record import Family

FAMILY = Family(
    name="sparse_transformer",
    config=SparseTransformerConfig,
    objectives=(CausalLm,),
    predictor="text_generation:ContinuationWriter",
    title="Sparse Transformer",
    task="text-generation",
    token_roles=("eos",),
    template="none",
    describe_card_rows=lambda config: [
        ("attention", f"{config.pattern} pattern, stride {config.stride}")
    ],
)
