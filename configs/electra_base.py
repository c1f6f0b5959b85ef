r"""ELECTRA-base (Clark et al. 2020, table 6).

110 M parameters, with a generator of a third of the width; 256 rows of 512 tokens a step.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS --vocabulary vocab.txt \
        --output english
    python -m pretrain train electra_base --workdir runs/electra_base data.store=english

BOOKS is a folder of text, vocab.txt BERT's uncased vocabulary. Cost: 4 days on 16 TPU v3 chips in
the paper. Not run.
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.electra import ElectraConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ElectraConfig(),
        data=Data(
            objective=ReplacedToken(length=512, max_predictions=77, rows="documents"),
            batch_size=256,
        ),
        optimizer=AdamW(learning_rate=2e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=766_000),
    )
