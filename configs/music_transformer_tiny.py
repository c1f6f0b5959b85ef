"""Music Transformer of 3 layers and width 128 on Bach's chorales: rows of 64 sixteenths.

    pip install -e .[music]
    python -m pretrain prepare-music chorales --output runs/chorales --transpose 5
    python -m pretrain train music_transformer_tiny --workdir runs/music
    python -m pretrain compose --workdir runs/music --output runs/chorale

A row is 256 tokens, four voices of each sixteenth. On two cores of a Xeon beside other programs,
2026-11-25: 1,000 steps, 4.1 million tokens, in 2,681 seconds; held-out loss 0.574 nats a token,
accuracy 82.6 %. Without `model.relative`: 0.854. One seed; the rate of learning was not tuned.
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
