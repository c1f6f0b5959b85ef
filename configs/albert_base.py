r"""ALBERT-base (Lan et al. 2020, table 1, section 4.1).

11.7 M parameters; 4,096 rows of 512 tokens a step, 125,000 steps.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS --vocab-size 30000 \
        --lowercase --output english_30k
    python -m pretrain train albert_base --workdir runs/albert_base data.store=english_30k

BOOKS is a folder of text. The 3,125 warmup steps follow the authors' released command. Cost: 64 to
512 TPU v3 chips in the paper, depending on the size. Not run.
"""

from data.config import Data
from data.objectives.sentence_order import SentenceOrder
from models.config.albert import AlbertConfig
from pretrain.config import Lamb, Run, Train


def config() -> Run:
    return Run(
        model=AlbertConfig(),
        data=Data(
            objective=SentenceOrder(length=512, max_predictions=77, ngram=3), batch_size=4096
        ),
        optimizer=Lamb(learning_rate=0.00176, warmup_steps=3_125),
        train=Train(steps=125_000),
    )
