"""T5-mini (Tay et al. 2021: 4 + 4 layers, width 384 there, 256 here) on the same books, by AdamW instead of Adafactor. Not yet run.

    python -m pretrain prepare BOOKS --output runs/books_t5 --vocab-size 8192 --layout t5
    python -m pretrain train t5_mini --workdir runs/t5_mini
"""

from data.config import Data
from data.objectives.span_corruption import SpanCorruption
from models.config import T5Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config():
    return Run(
        model=T5Config(vocab=8192, width=256, depth=4, decoder_depth=4, heads=4, head_width=64, mlp=1024, dropout=0.0),
        data=Data(store="runs/books_t5", objective=SpanCorruption(inputs=128), batch_size=16),
        optimizer=AdamW(learning_rate=1e-2, warmup=300, weight_decay=0.0, relative=True),
        train=Train(steps=2_500, compute="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
