"""A mini of ModernBERT's shape, in four minutes.

Four minutes of two CPU cores (docs/speedrun.md): eight narrow layers of ModernBERT's shape (Warner
et al. 2024), Muon (Jordan et al. 2024), rows of 64 from the start, 600 steps at a constant rate and
300 to 0. On 43 MB of books it has 30.0 % of held-out masked tokens right after 4:03 and 4:07
(two seeds, two cores of an Intel Xeon), bert_mini by AdamW after 17:13 and 17:24.

    python -m pretrain prepare BOOKS --output runs/books --vocab-size 8192
    python -m pretrain train bert_mini_fast --workdir runs/bert_mini_fast
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.modernbert import ModernBertConfig
from pretrain.config import Checkpoint, Evaluate, Muon, Phase, Run, Train


def config() -> Run:
    return Run(
        model=ModernBertConfig(
            vocab=8192,
            length=128,
            width=192,
            depth=8,
            num_heads=3,
            mlp=288,
            window=32,
            dropout=0.0,
            scan=False,
        ),
        data=Data(
            store="runs/books",
            objective=MaskedLm(length=64, max_predictions=20, mask_rate=0.3, rows="windows"),
            batch_size=16,
            feed="threads",
        ),
        optimizer=Muon(learning_rate=2e-3, warmup_steps=45, beta2=0.98, decay="constant"),
        train=Train(steps=900, compute_dtype="float32"),
        evaluate=Evaluate(every=300),
        checkpoint=Checkpoint(every=300),
        phases=(
            Phase("constant", steps=600),
            Phase(
                "decay",
                steps=300,
                overrides=("optimizer.warmup_steps=0", "optimizer.decay=linear"),
            ),
        ),
    )
