"""BERT-tiny (Turc et al. 2019): the first run.

2 layers of width 128 on the built-in corpus, with its own vocabulary of 4,096. Rows have 16 tokens,
from which a small BERT learns fastest; later positions stay untrained.

    python -m pretrain prepare builtin --output runs/builtin --vocab-size 4096
    python -m pretrain train bert_tiny --workdir runs/bert_tiny
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.bert import BertConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=BertConfig(
            vocab=4096,
            length=128,
            width=128,
            depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/builtin",
            objective=MaskedLm(length=16, max_predictions=5, mask_rate=0.3, rows="windows"),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
