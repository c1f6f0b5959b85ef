"""ELMo, the original model (Peters et al. 2018).

2 layers of 4,096 cells, 512 projections a direction: 93.6 M parameters, and a sampled softmax
(8,192 words a step) over 793,471 targets.

    python -m pretrain prepare TEXT --algorithm words --vocab-size 793471 --output words
    python -m pretrain train elmo --workdir runs/elmo data.store=words

Words are split at blanks, so separate punctuation first. The released model saw ten epochs of the
1B Word Benchmark with Adagrad at 0.2; we use AdamW. Not run.
"""

from data.config import Data
from data.objectives.bidirectional_lm import BidirectionalLm
from models.config.elmo import ElmoConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ElmoConfig(samples=8192),
        data=Data(objective=BidirectionalLm(length=20, zero_state_rate=0.1), batch_size=384),
        optimizer=AdamW(
            learning_rate=1e-3,
            warmup_steps=2_000,
            decay="cosine",
            weight_decay=0.0,
            max_grad_norm=10.0,
        ),
        train=Train(steps=1_000_000),
    )
