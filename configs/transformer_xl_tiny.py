"""A tiny Transformer-XL: 2 layers of width 128.

Segments of 32 tokens with a memory of 64, on the built-in corpus.

    python -m pretrain prepare builtin --output runs/builtin_gpt --vocab-size 4096 --layout gpt
    python -m pretrain train transformer_xl_tiny --workdir runs/transformer_xl_tiny

1,000 steps in 162 seconds on two CPU cores: held-out loss 4.90 nats with memory, 4.98 without. On
so little text, training with the memory gains nothing (benchmarks/results/small_runs.md).
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.transformer_xl import Clusters, TransformerXLConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=TransformerXLConfig(
            vocab=4096,
            width=128,
            depth=2,
            num_heads=2,
            head_width=64,
            mlp=512,
            dropout=0.0,
            memory=64,
            clusters=Clusters((512, 2048)),
        ),
        data=Data(
            store="runs/builtin_gpt",
            objective=CausalLm(length=32, order="lanes", separate_documents=True),
            batch_size=32,
        ),
        optimizer=AdamW(
            learning_rate=2e-3, warmup_steps=50, decay="cosine", end_lr_ratio=0.1, beta2=0.95
        ),
        train=Train(steps=1_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
