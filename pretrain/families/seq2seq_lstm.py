"""LSTM encoder-decoders: models/seq2seq_lstm.py. Hugging Face transformers has no such model."""

from data.objectives.seq2seq import Seq2Seq
from models.config.seq2seq_lstm import Seq2SeqLstmConfig
from pretrain.families.family_record import Family

FAMILY = Family(
    name="seq2seq_lstm",
    config=Seq2SeqLstmConfig,
    objectives=(Seq2Seq,),
    predictor="text_generation:TranslationWriter",
    title="LSTM encoder-decoder",
    task="translation",
    token_roles=("pad", "eos"),
    template="eos",
)
