r"""A tiny Grover: 2 layers of width 128.

A smoke test of articles as fields. Each line of ARTICLES.jsonl is an object with some of domain,
date, authors, headline and body.

    python -m pretrain prepare ARTICLES.jsonl --document fields --output runs/articles \
        --layout gpt2 --vocab-size 4096 --held-out 0.05
    python -m pretrain train grover_tiny --workdir runs/grover_tiny
    python -m pretrain predict --workdir runs/grover_tiny --top-p 0.94 '{"headline": "A bridge"}'
"""

from data.config import Data
from data.objectives.partitioned_fields import PartitionedFields
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=Gpt2Config(
            vocab=4096,
            length=256,
            width=128,
            depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(store="runs/articles", objective=PartitionedFields(length=128), batch_size=16),
        optimizer=AdamW(
            learning_rate=2e-3, warmup_steps=50, decay="cosine", end_lr_ratio=0.1, beta2=0.95
        ),
        train=Train(steps=500, compute_dtype="float32"),
        evaluate=Evaluate(every=250),
        checkpoint=Checkpoint(every=250),
    )
