"""BERT-mini on 28 authors' books, phase 2 of 2: rows of 64 for the last third of the steps. Not yet run to its end.

    python -m pretrain train bert_mini_64 --workdir runs/bert_mini --allow-changes

Continues the workdir of bert_mini, whose rows were shorter; as many tokens a step, and the learning rate goes on falling where it was.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config import BertConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config():
    return Run(
        model=BertConfig(vocab=8192, length=128, width=256, depth=4, heads=4, mlp=1024, dropout=0.0, attention_dropout=0.0),
        data=Data(store="runs/books", objective=MaskedLm(length=64, predictions=20, rate=0.3, join_documents=True), batch_size=16),
        optimizer=AdamW(learning_rate=1e-3, warmup=400, beta2=0.98),
        train=Train(steps=7_500, compute="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
