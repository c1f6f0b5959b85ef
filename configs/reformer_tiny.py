"""A Reformer of 2 layers and two streams of 128 on the built-in corpus: rows of 1,024 bytes.

    python -m pretrain prepare builtin --output runs/bytes --layout gpt2 --vocab-size 257
    python -m pretrain train reformer_tiny --workdir runs/reformer_tiny

The first layer is local, the second hashes in 2 rounds, both with chunks of 64 bytes: of 1,024, a
query is scored with 128, and with 256. On two cores of a Xeon beside other programs, 2026-11-25:
500 steps, 4.1 million bytes, took 842 seconds; held-out loss 2.42 nats a byte, accuracy 30.4 %. The
rate of learning was not tuned.
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
