"""LSTM of 2 layers of 512 cells over bytes (Karpathy et al. 2015): 100 bytes a row, on lanes.

python -m pretrain prepare TEXT --output runs/bytes --layout gpt2 --vocab-size 257
python -m pretrain train char_lstm --workdir runs/char_lstm data.store=runs/bytes

Not run with these sizes. With 2 layers of 256 cells and 32 rows of 128 bytes, 3,000 steps read 12.3
million bytes, the first 80 % of War and Peace 4.7 times, in 64 minutes on two cores of an AMD EPYC
beside other programs, 2026-11-25: 1.516 nats a character on its last tenth, and the n-gram model of
order 20 has 1.200 (benchmarks/results/char_lstm.md). It has read too little: the paper's LSTMs,
which are better than its n-gram model, read their text 50 times.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.lstm_lm import LstmLmConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=LstmLmConfig(vocab=257, width=512, depth=2, dropout=0.0, forget_bias=1.0),
        data=Data(
            store="runs/bytes",
            objective=CausalLm(length=100, order="lanes", zero_state_rate=0.01),
            batch_size=100,
        ),
        optimizer=AdamW(
            learning_rate=2e-3,
            warmup_steps=50,
            decay="cosine",
            end_lr_ratio=0.05,
            weight_decay=0.0,
            max_grad_norm=5.0,
        ),
        train=Train(steps=2_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
