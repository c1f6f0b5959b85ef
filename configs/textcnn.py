"""CNN-rand (Kim 2014).

100 filters each over 3, 4 and 5 words; dropout of half of their maxima.

    python -m pretrain finetune --config textcnn --task sst2 --workdir runs/textcnn

Scores: benchmarks/results/classifiers.md.
"""

from data.config import Data
from data.objectives.classification import Classification
from models.config.classifier import ClassifierConfig
from models.config.textcnn import TextCnnConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=ClassifierConfig(
            encoder=TextCnnConfig(),
            dropout=0.5,
        ),
        data=Data(objective=Classification(length=64), batch_size=50),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=0),
        train=Train(compute_dtype="float32"),
    )
