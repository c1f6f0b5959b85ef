r"""XLNet-base (Yang et al. 2019, section 3.4).

117 M parameters, BERT-base's size and text; 256 rows of 512 tokens a step, a million steps.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS --vocab-size 32000 \
        --output english_32k
    python -m pretrain train xlnet_base --workdir runs/xlnet_base data.store=english_32k

BOOKS is a folder of text. Rows are pairs of texts, half of them from two documents; one token in
six is predicted. The paper gives no batch size or learning rate for this model: we use BERT-base's.
For a memory of 384 states set `model.memory=384 data.objective.rows=windows
data.objective.order=lanes`. Not run.
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
