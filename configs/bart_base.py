r"""BART-base (Lewis et al. 2020, section 2.1).

139 M parameters; 8,000 rows of 512 tokens a step, 500,000 steps.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS NEWS --vocabulary VOCABULARY \
        --output english
    python -m pretrain train bart_base --workdir runs/bart_base data.store=english

BOOKS and NEWS are folders of text; VOCABULARY holds the released vocab.json and merges.txt. The
paper gives batch and steps for the large model only, and no learning rate: we use RoBERTa's for the
nearest size. It drops dropout in the last tenth of training: continue there with `model.dropout=0
--allow-changes`. Not run.
"""

from data.config import Data
from data.objectives.denoising import Denoising
from models.config.bart import BartConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=BartConfig(),
        data=Data(objective=Denoising(length=512), batch_size=8000),
        optimizer=AdamW(
            learning_rate=6e-4,
            warmup_steps=24_000,
            weight_decay=0.01,
            beta2=0.98,
            max_grad_norm=0.0,
        ),
        train=Train(steps=500_000),
    )
