r"""RoBERTa-base (Liu et al. 2019, table 9).

125 M parameters; 8,192 full rows of 512 tokens a step, 500,000 steps on 160 GB of text.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS NEWS --vocabulary VOCABULARY \
        --output english
    python -m pretrain train roberta_base --workdir runs/roberta_base data.store=english

BOOKS and NEWS are folders of text; VOCABULARY holds the released vocab.json and merges.txt. For
your own byte-level vocabulary, pass `--layout roberta --vocab-size 50265` to `prepare` instead.
Cost: a day for 100,000 steps on 1,024 V100 GPUs in the paper. Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.roberta import RobertaConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=RobertaConfig(),
        data=Data(
            objective=MaskedLm(length=512, max_predictions=77, rows="sentences"), batch_size=8192
        ),
        optimizer=AdamW(
            learning_rate=6e-4,
            warmup_steps=24_000,
            weight_decay=0.01,
            beta2=0.98,
            max_grad_norm=0.0,
        ),
        train=Train(steps=500_000),
    )
