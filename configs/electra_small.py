"""ELECTRA-small (Clark et al. 2020, table 6).

14 M parameters, with a generator of a quarter of the width; 128 rows of 128 tokens a step, a
million steps. Store as in electra_base.

    python -m pretrain train electra_small --workdir runs/electra_small data.store=english

The released small model differs: 4 million steps, and a generator as wide as the discriminator.
Cost: 4 days on one V100 in the paper. Not run.
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.electra import ElectraConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ElectraConfig(
            embedding=128,
            width=256,
            num_heads=4,
            mlp=1024,
            generator_width=64,
            generator_num_heads=1,
            generator_mlp=256,
        ),
        data=Data(
            objective=ReplacedToken(length=128, max_predictions=19, rows="documents"),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=5e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=1_000_000),
    )
