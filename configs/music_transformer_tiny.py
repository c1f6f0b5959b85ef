"""A tiny Music Transformer on Bach's chorales.

3 layers of width 128; rows of 64 sixteenths, 256 tokens for four voices.

    pip install -e .[music]
    python -m pretrain prepare-music chorales --output runs/chorales --transpose 5
    python -m pretrain train music_transformer_tiny --workdir runs/music
    python -m pretrain compose --workdir runs/music --output runs/chorale

1,000 steps in 45 minutes on two CPU cores: held-out loss 0.574 nats a token, accuracy 82.6 %; 0.854
without `model.relative` (benchmarks/results/small_runs.md).
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.music_transformer import MusicTransformerConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=MusicTransformerConfig(
            vocab=132,
            width=128,
            depth=3,
            num_heads=4,
            head_width=32,
            mlp=512,
            attention_dropout=0.0,
            max_distance=256,
        ),
        data=Data(
            store="runs/chorales",
            objective=CausalLm(length=256),
            batch_size=16,
        ),
        optimizer=AdamW(
            learning_rate=2e-3, warmup_steps=100, decay="cosine", end_lr_ratio=0.1, beta2=0.98
        ),
        train=Train(steps=1_000, compute_dtype="float32"),
        evaluate=Evaluate(every=250),
        checkpoint=Checkpoint(every=250),
    )
