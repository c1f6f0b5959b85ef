r"""DeBERTa-v3-xsmall (He et al. 2021): 71 M parameters.

64 rows of 512 tokens a step, a million steps, as in the authors' script. Of the words, 15 % are
masked as wholes.

    python -m pretrain prepare CORPUS --vocab-size 128000 --output corpus
    python -m pretrain train deberta_v3_xsmall --workdir runs/deberta_v3_xsmall data.store=corpus

CORPUS is a folder of text; theirs has 160 GB. Not run.
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.deberta_v3 import DebertaV3Config
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=DebertaV3Config(width=384, num_heads=6, mlp=1536),
        data=Data(
            objective=ReplacedToken(
                length=512, max_predictions=77, whole_words=True, rows="windows"
            ),
            batch_size=64,
        ),
        optimizer=AdamW(learning_rate=3e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=1_000_000),
    )
