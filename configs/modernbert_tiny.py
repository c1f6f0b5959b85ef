"""A tiny ModernBERT: 4 layers of width 128.

A smoke test, whose first and last layers are global; corpus and vocabulary as in bert_tiny.

    python -m pretrain prepare builtin --output runs/builtin --vocab-size 4096
    python -m pretrain train modernbert_tiny --workdir runs/modernbert_tiny
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.modernbert import ModernBertConfig
from pretrain.config import Checkpoint, Evaluate, Run, StableAdamW, Train


def config() -> Run:
    return Run(
        model=ModernBertConfig(
            vocab=4096,
            length=128,
            width=128,
            depth=4,
            num_heads=2,
            mlp=256,
            window=8,
            dropout=0.0,
        ),
        data=Data(
            store="runs/builtin",
            objective=MaskedLm(length=16, max_predictions=5, mask_rate=0.3, rows="windows"),
            batch_size=128,
        ),
        optimizer=StableAdamW(learning_rate=1e-3, warmup_steps=100),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
