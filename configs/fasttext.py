"""fastText (Joulin et al. 2016).

The average of 10 numbers for each word and each bigram.

    python -m pretrain finetune --config fasttext --task sst2 --workdir runs/fasttext

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
            encoder=DeepAveragingConfig(width=10, depth=0, word_dropout=0.0, ngrams=2),
            dropout=0.0,
        ),
        data=Data(objective=Classification(length=64), batch_size=50),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=0),
        train=Train(compute_dtype="float32"),
    )
