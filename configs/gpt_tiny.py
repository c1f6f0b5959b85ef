"""A tiny GPT-2: 2 layers of width 128.

A smoke test of generation on the built-in corpus, half a million tokens.

    python -m pretrain prepare builtin --output runs/builtin_gpt --vocab-size 4096 --layout gpt
    python -m pretrain train gpt_tiny --workdir runs/gpt_tiny
    python -m pretrain predict --workdir runs/gpt_tiny "The value of the" --length 16

76 seconds of CPU time: held-out loss 5.42 nats, accuracy 14.0 %
(benchmarks/results/small_runs.md). After so little text it writes "The value of the same, the
same, the same".
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=Gpt2Config(
            vocab=4096,
            length=128,
            width=128,
            depth=2,
            num_heads=2,
            mlp=512,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(store="runs/builtin_gpt", objective=CausalLm(length=64), batch_size=16),
        optimizer=AdamW(
            learning_rate=2e-3, warmup_steps=50, decay="cosine", end_lr_ratio=0.1, beta2=0.95
        ),
        train=Train(steps=500, compute_dtype="float32"),
        evaluate=Evaluate(every=250),
        checkpoint=Checkpoint(every=250),
    )
