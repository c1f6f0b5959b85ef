"""A tiny Sparse Transformer: 2 layers of width 128.

Rows of 1,024 bytes, fixed pattern with stride 32 and c = 8: the last query attends to 280 of 1,024
positions.

    python -m pretrain prepare builtin --output runs/bytes --layout gpt2 --vocab-size 257
    python -m pretrain train sparse_transformer_tiny --workdir runs/sparse_transformer_tiny

500 steps in 20 minutes on two CPU cores: held-out loss 2.62 nats a byte, accuracy 25.3 %
(benchmarks/results/small_runs.md).
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.sparse_transformer import SparseTransformerConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=SparseTransformerConfig(
            vocab=257,
            length=1_024,
            width=128,
            depth=2,
            num_heads=4,
            mlp=512,
            dropout=0.0,
            stride=32,
            summary=8,
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
