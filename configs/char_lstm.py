"""Character LSTM (Karpathy et al. 2015).

2 layers of 512 cells over bytes, 100 bytes a row, with the state carried from row to row.

    python -m pretrain prepare TEXT --output runs/bytes --layout gpt2 --vocab-size 257
    python -m pretrain train char_lstm --workdir runs/char_lstm data.store=runs/bytes

Not run at this size. 256 cells on War and Peace, 64 minutes on two CPU cores (4.7 readings; the
paper's LSTMs read 50 times): 1.516 nats a character; an n-gram model of order 20 has 1.200
(benchmarks/results/char_lstm.md).
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
