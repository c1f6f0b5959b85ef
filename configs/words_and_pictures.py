"""A small BERT on captions and visual tokens.

The idea of VideoBERT (Sun et al. 2019) in 2 layers of width 128, for a CPU.

    python -m pretrain prepare-captions FOLDER --output runs/captions --patch 12 --clusters 512
    python -m pretrain train words_and_pictures --workdir runs/words_and_pictures

On pictures of two digits, 11 minutes on a CPU core: the picture fills 86.7 % of a caption's masked
digits rightly, and 99.7 % of the digits drawn from captions are readable
(benchmarks/results/words_and_pictures.md).
"""

from data.config import Data
from data.objectives.words_and_pictures import WordsAndPictures
from models.config.bert import BertConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=BertConfig(
            vocab=640,
            length=32,
            width=128,
            depth=2,
            num_heads=4,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/captions",
            objective=WordsAndPictures(length=28, max_predictions=16),
            batch_size=64,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=200, decay="cosine"),
        train=Train(steps=4_000, compute_dtype="float32"),
        evaluate=Evaluate(every=1000),
        checkpoint=Checkpoint(every=1000),
    )
