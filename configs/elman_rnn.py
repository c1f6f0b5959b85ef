"""Elman's recurrent network (Elman 1990).

One layer, whose last output is classified.

    python -m pretrain finetune --config elman_rnn --task sst2 --workdir runs/elman_rnn

Scores: benchmarks/results/classifiers.md.
"""

from data.config import Data
from data.objectives.classification import Classification
from models.config.classifier import ClassifierConfig
from models.config.recurrent_encoder import RecurrentEncoderConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ClassifierConfig(
            encoder=RecurrentEncoderConfig(cell="elman"),
            dropout=0.5,
        ),
        data=Data(objective=Classification(length=64), batch_size=50),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=0),
        train=Train(compute_dtype="float32"),
    )
