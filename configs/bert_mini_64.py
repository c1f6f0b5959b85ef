"""BERT-mini (Turc et al. 2019): then rows of 64.

The last third of the steps, in bert_mini's workdir, schedule and tokens a step.

    python -m pretrain train bert_mini_64 --workdir runs/bert_mini --allow-changes

2,500 steps in 16 minutes on a CPU core. The loss rises to 5.7 nats, because 48 of 64 positions are
new, and ends at 3.93 (perplexity 51, accuracy 33.1 %, benchmarks/results/bert_mini.md).
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
