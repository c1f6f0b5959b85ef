"""A tiny T5Gemma: 2 + 2 layers of width 128.

A smoke test on the built-in corpus, with sentinels.

    python -m pretrain prepare builtin --output runs/builtin_ul2 --vocab-size 4096 --layout ul2
    python -m pretrain train t5gemma_tiny --workdir runs/t5gemma_tiny
"""

from data.config import Data
from data.objectives.span_corruption import SpanCorruption
from models.config.t5gemma import T5GemmaConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=T5GemmaConfig(
            vocab=4096,
            length=64,
            width=128,
            depth=2,
            decoder_depth=2,
            num_heads=4,
            num_key_heads=2,
            head_width=32,
            mlp=256,
            window=8,
            start=1,
        ),
        data=Data(store="runs/builtin_ul2", objective=SpanCorruption(inputs=32), batch_size=32),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
