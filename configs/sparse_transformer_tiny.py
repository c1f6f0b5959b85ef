"""Sparse Transformer of 2 layers and width 128 on the built-in corpus: rows of 1,024 bytes.

    python -m pretrain prepare builtin --output runs/bytes --layout gpt2 --vocab-size 257
    python -m pretrain train sparse_transformer_tiny --workdir runs/sparse_transformer_tiny

The fixed pattern with stride 32 and c = 8: of 1,024 positions the last query attends to 280. On two
cores of a Xeon beside other programs, 2026-11-25: 500 steps, 4.1 million bytes, in 1,201 seconds;
held-out loss 2.62 nats a byte, accuracy 25.3 %. The rate of learning was not tuned.
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
