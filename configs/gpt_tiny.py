"""A GPT-2 of 2 layers and width 128 on the built-in corpus, half a million tokens of it.

The smoke test of generation.

    python -m pretrain prepare builtin --output runs/builtin_gpt --vocab-size 4096 --layout gpt
    python -m pretrain train gpt_tiny --workdir runs/gpt_tiny
    python -m pretrain predict --workdir runs/gpt_tiny "The value of the" --length 16

On an AMD EPYC, 2026-11-21: 76 seconds of CPU time, held-out loss 5.42 nats (perplexity 226),
accuracy 14.0 %. Unigrams: 6.54 nats (691), 4.9 %. It generates "The value of the same, the same,
the same", because it is trained on too little text.
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
