"""BERT-mini (Turc et al. 2019: 4 layers, width 256), phase 1 of 2: rows of 16 tokens.

The data is 28 authors' books, 10 million tokens.

    python -m pretrain prepare BOOKS --output runs/books --vocab-size 8192
    python -m pretrain train bert_mini --workdir runs/bert_mini

Then train bert_mini_64 in the same workdir. Short rows come first because a small BERT learns word
order from them: on rows of 128 tokens it had learned only which words occur together after nine
times as many (LOG.md).

On one core of an AMD EPYC, 2026-11-21: 5,000 steps in 35 minutes, held-out loss 4.33 nats,
masked-token accuracy 29.1 %. The most frequent token alone would have 5.3 %.
benchmarks/results/bert_mini.md has the curves.
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
            objective=MaskedLm(length=16, max_predictions=5, mask_rate=0.3, rows="windows"),
            batch_size=64,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=400, beta2=0.98),
        train=Train(steps=7_500, stop_at_step=5_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
