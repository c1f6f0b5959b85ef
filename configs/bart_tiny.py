r"""A tiny BART: 2 + 2 layers of width 128.

A smoke test on the built-in corpus, with a byte-level vocabulary.

    python -m pretrain prepare builtin --output runs/builtin_bytes --vocab-size 4096 \
        --layout roberta
    python -m pretrain train bart_tiny --workdir runs/bart_tiny
"""

from data.config import Data
from data.objectives.denoising import Denoising
from models.config.bart import BartConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=BartConfig(
            vocab=4096,
            length=64,
            width=128,
            depth=2,
            decoder_depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
        ),
        data=Data(store="runs/builtin_bytes", objective=Denoising(length=34), batch_size=32),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100, beta2=0.98),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
