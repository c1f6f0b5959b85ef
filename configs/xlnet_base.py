"""XLNet-base (Yang et al. 2019, section 3.4 and the released model).

117 M parameters, BERT-base's size and text: 256 rows of 512 tokens a step, a million steps.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS --vocab-size 32000 \
        --output english_32k
    python -m pretrain train xlnet_base --workdir runs/xlnet_base data.store=english_32k

BOOKS is a folder of text files. Rows are pairs of texts, half of them of two documents, in which
one token in six is predicted. The paper prints no batch size and no rate of this model: those are
BERT-base's, and the other settings are those of xlnet_large. Rows that continue each other, with a
memory of 384 states, are `model.memory=384 data.objective.rows=windows data.objective.order=lanes`.

Not run: the project had no accelerator.
"""

from data.config import Data
from data.objectives.permutation_lm import PermutationLm
from models.config.xlnet import XLNetConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=XLNetConfig(),
        data=Data(objective=PermutationLm(length=512), batch_size=256),
        optimizer=AdamW(learning_rate=1e-4, warmup_steps=10_000, weight_decay=0.01, epsilon=1e-6),
        train=Train(steps=1_000_000),
    )
