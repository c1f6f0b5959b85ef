r"""Ettin's encoder, 17 M (Weller et al. 2025).

The first of its three phases: 1.7 T tokens in rows of 1,024, 30 % of them masked, at a constant
rate after the warmup. Rotary positions have the base 10,000 in all layers; a later phase with rows
of 7,999 raises it to 160,000.

    python -m pretrain prepare CORPUS --algorithm byte_bpe --layout roberta \
        --vocab-size 50368 --output corpus
    python -m pretrain train ettin_17m --workdir runs/ettin_17m data.store=corpus

CORPUS is a folder of text. The authors do not pack rows; this run does. They raise the batch over
125 B tokens, as data.batch_ramp.start=144 data.batch_ramp.tokens=125e9 does. Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.modernbert import ModernBertConfig
from pretrain.config import Run, StableAdamW, Train


def config() -> Run:
    return Run(
        model=ModernBertConfig(
            width=256, depth=7, num_heads=4, mlp=384, global_rotary_base=10_000.0
        ),
        data=Data(
            objective=MaskedLm(length=1024, max_predictions=308, mask_rate=0.3), batch_size=4608
        ),
        optimizer=StableAdamW(
            learning_rate=3e-3,
            warmup_steps=848,
            decay="constant",
            weight_decay=3e-4,
        ),
        train=Train(steps=360_277),
    )
