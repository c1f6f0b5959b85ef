"""A GPT-2 of 2 layers and width 128 on the built-in corpus: the first run of a model that writes.

    python -m pretrain prepare builtin --output runs/builtin_gpt --vocab-size 4096 --layout gpt
    python -m pretrain train gpt_tiny --workdir runs/gpt_tiny
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config import Gpt2Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config():
    return Run(
        model=Gpt2Config(vocab=4096, length=128, width=128, depth=2, heads=2, mlp=512, dropout=0.0, attention_dropout=0.0),
        data=Data(store="runs/builtin_gpt", objective=CausalLm(length=64), batch_size=16),
        optimizer=AdamW(learning_rate=2e-3, warmup=50, decay="cosine", final=0.1, beta2=0.95),
        train=Train(steps=500, compute="float32"),
        evaluate=Evaluate(every=250),
        checkpoint=Checkpoint(every=250),
    )
