"""RoBERTa-base (Liu et al. 2019, table 9).

125 M parameters, 8,192 rows of 512 a step, half a million steps on 160 GB of text.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS NEWS --vocabulary VOCABULARY \
        --output english
    python -m pretrain train roberta_base --workdir runs/roberta_base data.store=english

BOOKS and NEWS are folders of text, VOCABULARY is a folder with the released vocab.json and
merges.txt. Or train a byte-level vocabulary on your own text: `prepare ... --layout roberta
--vocab-size 50265`. All steps have full rows.

The paper: a day for 100,000 steps on 1,024 V100 GPUs. Not run: the project had no accelerator.
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
