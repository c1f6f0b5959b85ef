"""T5 v1.1 base (Raffel et al. 2019, Shazeer 2020).

248 M parameters with gated GELU and untied output embeddings, without dropout. Store, steps, rows
and optimizer as in t5_base.

    python -m pretrain train t5_v1_1_base --workdir runs/t5_v1_1_base data.store=c4

Not run.
"""

from data.config import Data
from data.objectives.span_corruption import SpanCorruption
from models.config.t5 import T5Config
from pretrain.config import Adafactor, Run, Train


def config() -> Run:
    return Run(
        model=T5Config(mlp=2048, gated=True, tied=False, dropout=0.0),
        data=Data(objective=SpanCorruption(), batch_size=128),
        optimizer=Adafactor(learning_rate=1.0, warmup_steps=10_000),
        train=Train(steps=2**19),
    )
