"""A tiny XLNet: 2 layers of width 128.

A smoke test with rows of 32 tokens, on the built-in corpus.

    python -m pretrain prepare builtin --output runs/builtin --vocab-size 4096
    python -m pretrain train xlnet_tiny --workdir runs/xlnet_tiny
"""

from data.config import Data
from data.objectives.permutation_lm import PermutationLm
from models.config.xlnet import XLNetConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=XLNetConfig(
            vocab=4096,
            length=128,
            width=128,
            depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/builtin",
            objective=PermutationLm(length=32, rows="windows"),
            batch_size=64,
        ),
        optimizer=AdamW(learning_rate=2e-3, warmup_steps=60),
        train=Train(steps=600, compute_dtype="float32"),
        evaluate=Evaluate(every=300),
        checkpoint=Checkpoint(every=300),
    )
