"""ALBERT-xlarge (Lan et al. 2020, table 1).

58.7 M parameters; store, rows and steps as in albert_base. Heads: H / 64 (section 3.1).

    python -m pretrain train albert_xlarge --workdir runs/albert_xlarge data.store=english_30k

Not run.
"""

from data.config import Data
from data.objectives.sentence_order import SentenceOrder
from models.config.albert import AlbertConfig
from pretrain.config import Lamb, Run, Train


def config() -> Run:
    return Run(
        model=AlbertConfig(width=2048, depth=24, num_heads=32, mlp=8192, remat=True),
        data=Data(
            objective=SentenceOrder(length=512, max_predictions=77, ngram=3), batch_size=4096
        ),
        optimizer=Lamb(learning_rate=0.00176, warmup_steps=3_125),
        train=Train(steps=125_000),
    )
