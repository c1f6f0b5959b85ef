"""A tiny ELMo, in float32 for a CPU.

2 layers of 128 cells, 32 projections a direction. It reads every word and predicts the 4,000 most
frequent; the rest count as [UNK].

    python -m pretrain prepare TEXT --algorithm words --vocab-size 50000 --output words
    python -m pretrain train elmo_tiny --workdir runs/elmo_tiny data.store=words

With 256 cells, as features of a tagger: benchmarks/results/elmo_tagger.md.
"""

from data.config import Data
from data.objectives.bidirectional_lm import BidirectionalLm
from models.config.elmo import ElmoConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=ElmoConfig(
            vocab=4_000,
            width=32,
            cells=128,
            characters=20,
            character_width=8,
            character_filters=((1, 16), (2, 16), (3, 32), (4, 32)),
            highways=1,
        ),
        data=Data(
            objective=BidirectionalLm(length=20, characters=20, zero_state_rate=0.1), batch_size=32
        ),
        optimizer=AdamW(
            learning_rate=3e-3,
            warmup_steps=50,
            decay="cosine",
            end_lr_ratio=0.05,
            weight_decay=0.0,
            max_grad_norm=10.0,
        ),
        train=Train(steps=1_000, compute_dtype="float32"),
        evaluate=Evaluate(every=250),
        checkpoint=Checkpoint(every=250),
    )
