"""T5-small (Raffel et al. 2019, section 3.7).

60 M parameters. The training is that of the paper's baseline on C4, whose model is T5-base (section
3.1): 2^19 steps of 128 rows of 512, Adafactor.

    python -m pretrain prepare tfds:c4/en --vocabulary spiece.model --output c4
    python -m pretrain train t5_small --workdir runs/t5_small data.store=c4

spiece.model is the released vocabulary. To use AdamW: optimizer=adamw
optimizer.scale_by_param_rms=true optimizer.learning_rate=0.01 optimizer.weight_decay=0. Its
convergence was measured on a small model only (configs/t5_mini.py). Not run: the project had no
accelerator.
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
