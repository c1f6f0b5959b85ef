"""NeoBERT, 250 M (Le Breton et al. 2025).

The first of its two phases: 1 M steps in rows of 1,024, of whose tokens 20 % are masked. The rate
falls by half a cosine to a tenth at step 900,000. The second phase adds 50,000 steps in rows of
4,096, of documents that are longer than 1,024 tokens.

    python -m pretrain prepare CORPUS --output corpus
    python -m pretrain train neobert --workdir runs/neobert data.store=corpus

CORPUS is a folder of text; theirs is RefinedWeb, with BERT's vocabulary of 30,522 pieces. This run
packs rows. Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.neobert import NeoBertConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=NeoBertConfig(),
        data=Data(
            objective=MaskedLm(length=1024, max_predictions=205, mask_rate=0.2, masks_only=True),
            batch_size=2048,
        ),
        optimizer=AdamW(
            learning_rate=1e-4,
            warmup_steps=2000,
            decay="cosine",
            decay_steps=900_000,
            end_lr_ratio=0.1,
            beta2=0.95,
            epsilon=1e-8,
        ),
        train=Train(steps=1_000_000),
    )
