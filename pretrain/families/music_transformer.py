"""Music Transformer: models/music_transformer.py. Hugging Face transformers has none."""

from data.objectives.causal_lm import CausalLm
from models.config.music_transformer import MusicTransformerConfig
from pretrain.families.family_record import Family

FAMILY = Family(
    name="music_transformer",
    config=MusicTransformerConfig,
    objectives=(CausalLm,),
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
)
