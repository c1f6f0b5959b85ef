r"""Distillation in small: one layer learns from two.

A smoke test, taught by bert_tiny's run in runs/bert_tiny.

    python -m pretrain distil distilbert_tiny --teacher runs/bert_tiny \
        --workdir runs/distilbert_tiny
    python -m pretrain train distilbert_tiny --workdir runs/distilbert_tiny
"""

from data.config import Data
from data.objectives.distillation import Distillation
from models.config.distilbert import DistilBertConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=DistilBertConfig(
            vocab=4096,
            length=128,
            width=128,
            depth=1,
            teacher_depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/builtin",
            objective=Distillation(length=16, max_predictions=5, mask_rate=0.3, rows="windows"),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=50),
        train=Train(steps=500, compute_dtype="float32"),
        evaluate=Evaluate(every=250),
        checkpoint=Checkpoint(every=250),
    )
