r"""ELECTRA-large, ELECTRA-400K (Clark et al. 2020).

335 M parameters, a quarter of the tokens masked; 2,048 rows of 512 tokens a step (table 6). Set
train.steps=1750000 for ELECTRA-1.75M. It rematerializes activations.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS NEWS --vocabulary vocab.txt \
        --output english
    python -m pretrain train electra_large --workdir runs/electra_large data.store=english

Vocabulary as in electra_base; the paper reads XLNet's 33 billion tokens. Not run.
"""

from data.config import Data
from data.objectives.replaced_token import ReplacedToken
from models.config.electra import ElectraConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ElectraConfig(
            embedding=1024, width=1024, depth=24, num_heads=16, mlp=4096, remat=True
        ),
        data=Data(
            objective=ReplacedToken(
                length=512, max_predictions=128, mask_rate=0.25, rows="documents"
            ),
            batch_size=2048,
        ),
        optimizer=AdamW(learning_rate=2e-4, warmup_steps=10_000, weight_decay=0.01),
        train=Train(steps=400_000),
    )
