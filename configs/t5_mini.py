"""T5-mini on 28 authors' books, with AdamW in place of Adafactor.

It has 4 + 4 layers as in Tay et al. 2021, and width 256 in place of 384.

    python -m pretrain prepare BOOKS --output runs/books_t5 --vocab-size 8192 --layout t5
    python -m pretrain train t5_mini --workdir runs/t5_mini

Each AdamW update is relative to its parameter's size, at Adafactor's learning rate of 0.01. With
plain AdamW at 2e-3 the loss stayed at 5.5 (LOG.md).

On one core of an AMD EPYC, 2026-11-21: 2,500 steps, 6.3 million tokens, in 45 minutes; held-out
loss 4.58 nats a label (perplexity 97), accuracy 30.0 %, sentinels included. Unigrams: 5.94 nats
(380), 3.8 %. benchmarks/results/t5_mini.md has the curves.
"""

from data.config import Data
from data.objectives.span_corruption import SpanCorruption
from models.config.t5 import T5Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=T5Config(
            vocab=8192,
            width=256,
            depth=4,
            decoder_depth=4,
            num_heads=4,
            head_width=64,
            mlp=1024,
            dropout=0.0,
        ),
        data=Data(store="runs/books_t5", objective=SpanCorruption(inputs=128), batch_size=16),
        optimizer=AdamW(
            learning_rate=1e-2, warmup_steps=300, weight_decay=0.0, scale_by_param_rms=True
        ),
        train=Train(steps=2_500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
