"""A bag of words with two hidden layers.

The sum of the embeddings, as in cbow, below two hidden layers.

    python -m pretrain finetune --config deep_cbow --task sst2 --workdir runs/deep_cbow

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
            encoder=DeepAveragingConfig(
                width=64, depth=2, hidden=64, activation="tanh", combine="sum", word_dropout=0.0
            ),
            dropout=0.0,
        ),
        data=Data(objective=Classification(length=64), batch_size=50),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=0),
        train=Train(compute_dtype="float32"),
    )
