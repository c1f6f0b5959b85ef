"""LSTM language model, the medium one of Zaremba et al. 2014 (section 4.1): 2 layers of 650 cells.

19.8 M parameters with the 10,000 words of the Penn Treebank; dropout of 50 % between the layers.

    python -m pretrain prepare TEXT --vocabulary VOCABULARY --output text
    python -m pretrain train lstm_lm --workdir runs/lstm_lm data.store=text

Set model.vocab where yours is another one. The one layer of 1,024 cells of Dai and Le 2015 is
model.depth=1 model.width=1024. The paper trains by SGD with a rate of 1 that falls after the
sixth epoch; this file has AdamW. Not run to its end.
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
