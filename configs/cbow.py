"""Continuous bag of words (Mikolov et al. 2013).

A linear map of the sum of the embeddings.

    python -m pretrain finetune --config cbow --task sst2 --workdir runs/cbow

Scores: benchmarks/results/classifiers.md.
"""

from data.config import Data
from data.objectives.classification import Classification
from models.config.classifier import ClassifierConfig
from models.config.deep_averaging import DeepAveragingConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ClassifierConfig(
            encoder=DeepAveragingConfig(width=64, depth=0, combine="sum", word_dropout=0.0),
            dropout=0.0,
        ),
        data=Data(objective=Classification(length=64), batch_size=50),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=0),
        train=Train(compute_dtype="float32"),
    )
