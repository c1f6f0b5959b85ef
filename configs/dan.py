"""Deep averaging network (Iyyer et al. 2015).

Three hidden layers; training drops a third of the words.

    python -m pretrain finetune --config dan --task sst2 --workdir runs/dan

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
            encoder=DeepAveragingConfig(),
            dropout=0.0,
        ),
        data=Data(objective=Classification(length=64), batch_size=50),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=0),
        train=Train(compute_dtype="float32"),
    )
