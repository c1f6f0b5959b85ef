"""A tiny Reformer: 2 layers, two streams of 128.

Rows of 1,024 bytes in chunks of 64. The first layer is local and scores 128 keys a query; the
second hashes in 2 rounds and scores 256.

    python -m pretrain prepare builtin --output runs/bytes --layout gpt2 --vocab-size 257
    python -m pretrain train reformer_tiny --workdir runs/reformer_tiny

500 steps in 14 minutes on two CPU cores: held-out loss 2.42 nats a byte, accuracy 30.4 %
(benchmarks/results/small_runs.md).
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=ReformerConfig(
            vocab=257,
            width=128,
            depth=2,
            num_heads=4,
            head_width=32,
            mlp=512,
            dropout=0.0,
            layers=("local", "lsh"),
            hashing=Hashing(chunk=64, rounds=2),
            local=LocalChunks(chunk=64, dropout=0.0),
            axial_shape=(32, 32),
            axial_widths=(32, 96),
        ),
        data=Data(
            store="runs/bytes",
            objective=CausalLm(length=1_024),
            batch_size=8,
        ),
        optimizer=AdamW(
            learning_rate=2e-3, warmup_steps=50, decay="cosine", end_lr_ratio=0.1, beta2=0.95
        ),
        train=Train(steps=500, compute_dtype="float32"),
        evaluate=Evaluate(every=250),
        checkpoint=Checkpoint(every=250),
    )
