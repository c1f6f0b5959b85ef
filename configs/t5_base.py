"""T5-base, the paper's baseline (Raffel et al. 2019).

220 M parameters; 128 rows of 512 tokens of C4 a step, 2^19 steps, Adafactor (section 3.1).

    python -m pretrain prepare tfds:c4/en --vocabulary spiece.model --output c4
    python -m pretrain train t5_base --workdir runs/t5_base data.store=c4

spiece.model is the released vocabulary. AdamW works too, as measured on t5_mini: `optimizer=adamw
optimizer.scale_by_param_rms=true optimizer.learning_rate=0.01 optimizer.weight_decay=0`. Not
run.
"""

from data.config import Data
from data.objectives.span_corruption import SpanCorruption
from models.config.t5 import T5Config
from pretrain.config import Adafactor, Run, Train


def config() -> Run:
    return Run(
        model=T5Config(),
        data=Data(objective=SpanCorruption(), batch_size=128),
        optimizer=Adafactor(learning_rate=1.0, warmup_steps=10_000),
        train=Train(steps=2**19),
    )
