"""LSTM language model, medium (Zaremba et al. 2014).

2 layers of 650 cells with dropout of 50 % between them (section 4.1): 19.8 M parameters with the
Penn Treebank's 10,000 words. For another vocabulary set model.vocab; for the layer of Dai and Le
(2015) set model.depth=1 model.width=1024.

    python -m pretrain prepare TEXT --vocabulary VOCABULARY --output text
    python -m pretrain train lstm_lm --workdir runs/lstm_lm data.store=text

The paper uses SGD at 1, falling after the sixth epoch; we use AdamW. Not run to its end.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.lstm_lm import LstmLmConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=LstmLmConfig(),
        data=Data(
            objective=CausalLm(length=35, order="lanes", zero_state_rate=0.01), batch_size=20
        ),
        optimizer=AdamW(
            learning_rate=1e-3,
            warmup_steps=500,
            decay="cosine",
            weight_decay=0.0,
            max_grad_norm=5.0,
        ),
        train=Train(steps=50_000),
    )
