r"""DeBERTa-v3-small (He et al. 2021), 141 M parameters.

6 layers of width 768; rows, batch and rate of deberta_v3_base. Of the words, 15 % are masked as
wholes.

    python -m pretrain prepare CORPUS --vocab-size 128000 --output corpus
    python -m pretrain train deberta_v3_small --workdir runs/deberta_v3_small data.store=corpus

CORPUS is a folder of text; theirs has 160 GB. Not run.
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.deberta_v3 import DebertaV3Config
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=DebertaV3Config(depth=6, generator_depth=3),
        data=Data(
            objective=ReplacedToken(
                length=512, max_predictions=77, whole_words=True, rows="windows"
            ),
            batch_size=256,
        ),
        optimizer=AdamW(learning_rate=1e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=1_000_000),
    )
