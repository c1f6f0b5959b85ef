"""A tiny Linformer: 2 layers of width 128.

A smoke test in which queries attend to 16 mixtures of a row's 64 positions.

    python -m pretrain prepare builtin --output runs/builtin --vocab-size 4096
    python -m pretrain train linformer_tiny --workdir runs/linformer_tiny
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.linformer import LinformerConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=LinformerConfig(
            vocab=4096,
            length=64,
            rank=16,
            width=128,
            depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/builtin",
            objective=MaskedLm(length=64, max_predictions=20, mask_rate=0.3, rows="windows"),
            batch_size=32,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100, beta2=0.98),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
