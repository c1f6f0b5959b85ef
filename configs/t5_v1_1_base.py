"""T5 v1.1 base (Raffel et al. 2019, with Shazeer 2020's gated GELU).

248 M parameters, untied output embeddings, no dropout, C4 only.

    python -m pretrain prepare tfds:c4/en --vocabulary spiece.model --output c4
    python -m pretrain train t5_v1_1_base --workdir runs/t5_v1_1_base data.store=c4

Steps, rows and optimizer are those of the paper's baseline. Not run: the project had no
accelerator.
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
