r"""DistilBERT (Sanh et al. 2019).

67 M parameters, distilled from BERT-base on BERT's text; 4,000 rows of 512 tokens a step.

    python -m pretrain import BERT --workdir runs/bert
    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS \
        --vocabulary runs/bert/vocabulary --output english
    python -m pretrain distil distilbert_base --teacher runs/bert \
        --workdir runs/distilbert data.store=english
    python -m pretrain train distilbert_base --workdir runs/distilbert data.store=english

BERT is a Hugging Face folder. Learning rate, epochs and loss weights follow the authors' code:
three epochs of 3.3 billion words are 6,000 to 10,000 steps (3 x rows / 4,000). The authors mask
rare tokens more often and copy the teacher's layers 0, 2, 4, 7, 9, 11; we mask evenly and copy 0,
2, 4, 6, 8, 10. Not run.
"""

from data.config import Data
from data.objectives.distillation import Distillation
from models.config.distilbert import DistilBertConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=DistilBertConfig(),
        data=Data(
            objective=Distillation(length=512, max_predictions=77, rows="documents"),
            batch_size=4000,
        ),
        optimizer=AdamW(
            learning_rate=5e-4,
            warmup_steps=450,
            weight_decay=0.0,
            epsilon=1e-6,
            beta2=0.98,
            max_grad_norm=5.0,
        ),
        train=Train(steps=9_000),
    )
