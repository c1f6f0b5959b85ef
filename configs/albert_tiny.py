"""A tiny ALBERT: one layer of width 128, used 4 times.

A smoke test on the built-in corpus, with its own vocabulary of 4,096.

    python -m pretrain prepare builtin --output runs/builtin --vocab-size 4096
    python -m pretrain train albert_tiny --workdir runs/albert_tiny
"""

from data.config import Data
from data.objectives.sentence_order import SentenceOrder
from models.config.albert import AlbertConfig
from pretrain.config import Checkpoint, Evaluate, Lamb, Run, Train


def config() -> Run:
    return Run(
        model=AlbertConfig(
            vocab=4096,
            length=128,
            embedding=64,
            width=128,
            depth=4,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/builtin",
            objective=SentenceOrder(length=32, max_predictions=10, mask_rate=0.3),
            batch_size=64,
        ),
        optimizer=Lamb(learning_rate=1e-2, warmup_steps=100),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
