"""LSTM language models: models/lstm_lm.py. Hugging Face transformers has none."""

from data.objectives.causal_lm import CausalLm
from models.config.lstm_lm import LstmLmConfig
from pretrain.families.family_record import Family

FAMILY = Family(
    name="lstm_lm",
    config=LstmLmConfig,
    objectives=(CausalLm,),
    predictor="text_generation:ContinuationWriter",
    title="LSTM language model",
    task="text-generation",
    token_roles=("eos",),
    template="none",
)
