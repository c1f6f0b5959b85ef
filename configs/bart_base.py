"""BART-base (Lewis et al. 2020, section 2.1): 139 M parameters, 8,000 rows of 512 a step.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS NEWS --vocabulary VOCABULARY \
        --output english
    python -m pretrain train bart_base --workdir runs/bart_base data.store=english

BOOKS and NEWS are folders of text, VOCABULARY is a folder with the released vocab.json and
merges.txt. The paper gives batch size and steps of its large model only, and no learning rates:
these are RoBERTa's for its nearest size. The paper has no dropout in the last tenth of the steps:
continue from there with `model.dropout=0 --allow-changes`. Not run: the project had no accelerator.
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
