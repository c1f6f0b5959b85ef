"""ELMo, the small released model.

2 layers of 1,024 cells, 128 projections a direction, one highway: 13.6 M parameters and the
targets'. Store as in elmo.

    python -m pretrain train elmo_small --workdir runs/elmo_small data.store=words

Not run.
"""

from data.config import Data
from data.objectives.bidirectional_lm import BidirectionalLm
from models.config.elmo import ElmoConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ElmoConfig(cells=1024, width=128, highways=1, samples=8192),
        data=Data(objective=BidirectionalLm(length=20, zero_state_rate=0.1), batch_size=384),
        optimizer=AdamW(
            learning_rate=1e-3,
            warmup_steps=2_000,
            decay="cosine",
            weight_decay=0.0,
            max_grad_norm=10.0,
        ),
        train=Train(steps=1_000_000),
    )
