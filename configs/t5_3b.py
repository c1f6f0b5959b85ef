"""T5-3B (Raffel et al. 2019, section 3.7).

2.8 B parameters, trained like t5_large. It shards parameters over all chips.

    python -m pretrain train t5_3b --workdir runs/t5_3b data.store=c4

Not run.
"""

from data.config import Data
from data.objectives.span_corruption import SpanCorruption
from models.config.t5 import T5Config
from pretrain.config import Adafactor, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=T5Config(
            width=1024,
            depth=24,
            decoder_depth=24,
            num_heads=32,
            head_width=128,
            mlp=16384,
            remat=True,
        ),
        data=Data(objective=SpanCorruption(), batch_size=2048),
        optimizer=Adafactor(learning_rate=1.0, warmup_steps=10_000),
        train=Train(steps=1_000_000),
        mesh=Mesh(data=1, fsdp=-1),
    )
