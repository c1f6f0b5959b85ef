"""T5-large (Raffel et al. 2019, section 3.7).

770 M parameters; 2,048 rows of 512 tokens a step, a million steps, Adafactor. Store as in t5_base.

    python -m pretrain train t5_large --workdir runs/t5_large data.store=c4

It shards rows over all chips and rematerializes activations. The paper mixes supervised tasks into
this run; here it is span corruption alone. Not run.
"""

from data.config import Data
from data.objectives.span_corruption import SpanCorruption
from models.config.t5 import T5Config
from pretrain.config import Adafactor, Run, Train


def config() -> Run:
    return Run(
        model=T5Config(width=1024, depth=24, decoder_depth=24, num_heads=16, mlp=4096, remat=True),
        data=Data(objective=SpanCorruption(), batch_size=2048),
        optimizer=Adafactor(learning_rate=1.0, warmup_steps=10_000),
        train=Train(steps=1_000_000),
    )
