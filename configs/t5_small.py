"""T5-small (Raffel et al. 2019, section 3.7).

60 M parameters, trained like t5_base, whose store it reads.

    python -m pretrain train t5_small --workdir runs/t5_small data.store=c4

Not run.
"""

from data.config import Data
from data.objectives.span_corruption import SpanCorruption
from models.config.t5 import T5Config
from pretrain.config import Adafactor, Run, Train


def config() -> Run:
    return Run(
        model=T5Config(width=512, depth=6, decoder_depth=6, num_heads=8, mlp=2048),
        data=Data(objective=SpanCorruption(), batch_size=128),
        optimizer=Adafactor(learning_rate=1.0, warmup_steps=10_000),
        train=Train(steps=2**19),
    )
