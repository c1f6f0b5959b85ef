"""BERT-mini (Turc et al. 2019): rows of 16 first.

4 layers of width 256, 10 million tokens (28 authors' books). A small BERT learns word order from
short rows first; continue with bert_mini_64 in the same workdir.

    python -m pretrain prepare BOOKS --output runs/books --vocab-size 8192
    python -m pretrain train bert_mini --workdir runs/bert_mini

5,000 steps in 31 minutes on a CPU core: held-out loss 4.08 nats, 31.5 % of masked tokens right; the
most frequent token alone scores 5.7 % (benchmarks/results/bert_mini.md).
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
