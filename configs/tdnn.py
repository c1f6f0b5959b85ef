"""Time delay neural network (Waibel et al. 1989).

Two layers over 3 positions each, averaged.

    python -m pretrain finetune --config tdnn --task sst2 --workdir runs/tdnn

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
            encoder=TextCnnConfig(depth=2, windows=(3,), activation="tanh", pooling="mean"),
            dropout=0.5,
        ),
        data=Data(objective=Classification(length=64), batch_size=50),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=0),
        train=Train(compute_dtype="float32"),
    )
