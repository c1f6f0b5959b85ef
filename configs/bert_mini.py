"""BERT-mini (Turc et al. 2019: 4 layers, width 256) on 28 authors' books, 10 million tokens. Not yet run to its end.

    python -m pretrain prepare BOOKS --output runs/books --vocab-size 8192
    python -m pretrain train bert_mini --workdir runs/bert_mini
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config import BertConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config():
    return Run(
        model=BertConfig(vocab=8192, length=128, width=256, depth=4, heads=4, mlp=1024, dropout=0.0, attention_dropout=0.0),
        data=Data(store="runs/books", objective=MaskedLm(length=128, predictions=20, join_documents=True), batch_size=32),
        optimizer=AdamW(learning_rate=1e-3, warmup=200),
        train=Train(steps=2_000, compute="float32"),
        evaluate=Evaluate(every=250),
        checkpoint=Checkpoint(every=250),
    )
