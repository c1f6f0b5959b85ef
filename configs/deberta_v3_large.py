r"""DeBERTa-v3-large (He et al. 2021), 434 M parameters.

24 layers of width 1,024; 256 rows of 512 tokens a step, a million steps, as in the authors' script.
Of the words, 15 % are masked as wholes.

    python -m pretrain prepare CORPUS --vocab-size 128000 --output corpus
    python -m pretrain train deberta_v3_large --workdir runs/deberta_v3_large data.store=corpus

CORPUS is a folder of text; theirs has 160 GB. Not run.
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.deberta_v3 import DebertaV3Config
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=DebertaV3Config(
            width=1024, depth=24, generator_depth=12, num_heads=16, mlp=4096, remat=True
        ),
        data=Data(
            objective=ReplacedToken(
                length=512, max_predictions=77, whole_words=True, rows="windows"
            ),
            batch_size=256,
        ),
        optimizer=AdamW(learning_rate=1e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=1_000_000),
    )
