r"""ModernBERT-large, 395 M (Warner et al. 2024).

The first phase: 1.7 T tokens in rows of 1,024, 30 % of them masked, at a constant rate after the
warmup. Rotary positions have the base 10,000 in all layers; the second phase, with rows of 8,192,
raises it to 160,000 in the global ones. The authors lowered the rate to 5e-5 after 900 B tokens.

    python -m pretrain prepare CORPUS --algorithm byte_bpe --layout roberta \
        --vocab-size 50368 --output corpus
    python -m pretrain train modernbert_large --workdir runs/modernbert_large data.store=corpus

CORPUS is a folder of text. The authors raise the batch from a small one; this run has one batch
size. Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.modernbert import ModernBertConfig
from pretrain.config import Run, StableAdamW, Train


def config() -> Run:
    return Run(
        model=ModernBertConfig(
            width=1024, depth=28, num_heads=16, mlp=2624, global_rotary_base=10_000.0
        ),
        data=Data(
            objective=MaskedLm(length=1024, max_predictions=308, mask_rate=0.3), batch_size=4928
        ),
        optimizer=StableAdamW(
            learning_rate=5e-4,
            warmup_steps=396,
            decay="constant",
            weight_decay=1e-5,
        ),
        train=Train(steps=340_648),
    )
