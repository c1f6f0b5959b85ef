"""ALBERT-xxlarge (Lan et al. 2020, table 1).

222.6 M parameters without dropout (section 4.8); store and rows as in albert_base. The paper's best
model trained for 1.5 million steps.

    python -m pretrain train albert_xxlarge --workdir runs/albert_xxlarge data.store=english_30k

Not run.
"""

from data.config import Data
from data.objectives.sentence_order import SentenceOrder
from models.config.albert import AlbertConfig
from pretrain.config import Lamb, Mesh, Run, Train


def config() -> Run:
    return Run(
        model=AlbertConfig(
            width=4096, num_heads=64, mlp=16384, dropout=0.0, attention_dropout=0.0, remat=True
        ),
        data=Data(
            objective=SentenceOrder(length=512, max_predictions=77, ngram=3), batch_size=4096
        ),
        optimizer=Lamb(learning_rate=0.00176, warmup_steps=3_125),
        train=Train(steps=125_000),
        mesh=Mesh(data=1, fsdp=-1),
    )
