"""BERT-mini on 28 authors' books, phase 2 of 2: rows of 64 for the last third of the steps.

    python -m pretrain train bert_mini_64 --workdir runs/bert_mini --allow-changes

It continues the workdir of bert_mini, which has shorter rows and as many tokens a step, and its
learning rate schedule.

On one core of an AMD EPYC, 2026-11-21: 2,500 steps in 16 minutes. The loss rises to 5.6 nats first,
because 48 of 64 positions are new, and ends at 4.17 nats held out, perplexity 65, masked-token
accuracy 30.7 % (unigrams: 6.63 nats, 755, 5.3 %).
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.bert import BertConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=BertConfig(
            vocab=8192,
            length=128,
            width=256,
            depth=4,
            num_heads=4,
            mlp=1024,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/books",
            objective=MaskedLm(length=64, max_predictions=20, mask_rate=0.3, rows="windows"),
            batch_size=16,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=400, beta2=0.98),
        train=Train(steps=7_500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
