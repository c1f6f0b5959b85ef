r"""Ettin's encoder, 1 B (Weller et al. 2025).

The first of its three phases: 1.7 T tokens in rows of 1,024, 30 % of them masked, at a constant
rate after the warmup. Rotary positions have the base 10,000 in all layers; a later phase with rows
of 7,999 raises it to 160,000.

    python -m pretrain prepare CORPUS --algorithm byte_bpe --layout roberta \
        --vocab-size 50368 --output corpus
    python -m pretrain train ettin_1b --workdir runs/ettin_1b data.store=corpus

CORPUS is a folder of text. The authors do not pack rows; this run does. They raise the batch from
24 rows over 3 B tokens; data.batch_ramp.start=144 data.batch_ramp.tokens=3e9 does so in 31 sizes.
Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.modernbert import ModernBertConfig
from pretrain.config import Run, StableAdamW, Train


def config() -> Run:
    return Run(
        model=ModernBertConfig(
            width=1792, depth=28, num_heads=28, mlp=3840, global_rotary_base=10_000.0, remat=True
        ),
        data=Data(
            objective=MaskedLm(length=1024, max_predictions=308, mask_rate=0.3), batch_size=4608
        ),
        optimizer=StableAdamW(
            learning_rate=5e-4,
            warmup_steps=424,
            decay="constant",
            weight_decay=5e-5,
        ),
        train=Train(steps=360_277),
    )
