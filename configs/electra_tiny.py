"""A tiny ELECTRA (2 layers, 128 wide, and a generator of 64) on the built-in corpus: the smoke test.

    python -m pretrain prepare builtin --output runs/builtin --vocab-size 4096
    python -m pretrain train electra_tiny --workdir runs/electra_tiny
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config import ElectraConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config():
    return Run(
        model=ElectraConfig(
            **dict(vocab=4096, length=128, embedding=128, width=128, depth=2, heads=2, mlp=512, dropout=0.0, attention_dropout=0.0),
            **dict(generator_width=64, generator_heads=1, generator_mlp=256),
        ),
        data=Data(store="runs/builtin", objective=ReplacedToken(length=16, predictions=5, rate=0.3, rows="windows"), batch_size=128),
        optimizer=AdamW(learning_rate=1e-3, warmup=100),
        train=Train(steps=1500, compute="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
