"""ELECTRA-small (Clark et al. 2020, table 6).

14 M parameters, with a generator of a quarter of the width; 128 rows of 128 tokens a step, 1 M
steps.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS --vocabulary vocab.txt \
        --output english
    python -m pretrain train electra_small --workdir runs/electra_small data.store=english

BOOKS is a folder of text, vocab.txt is BERT's uncased vocabulary. The paper: 4 days on one V100
GPU. The small model that its authors released differs: it was trained for 4 million steps, with a
generator as wide as itself. Not run: the project had no accelerator.
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.electra import ElectraConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ElectraConfig(
            embedding=128,
            width=256,
            num_heads=4,
            mlp=1024,
            generator_width=64,
            generator_num_heads=1,
            generator_mlp=256,
        ),
        data=Data(
            objective=ReplacedToken(length=128, max_predictions=19, rows="documents"),
            batch_size=128,
        ),
        optimizer=AdamW(learning_rate=5e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=1_000_000),
    )
