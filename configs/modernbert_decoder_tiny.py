r"""A tiny ModernBERT decoder: 4 layers of width 128.

A smoke test, and one half of a cross-training.

    python -m pretrain prepare builtin --output runs/builtin_bytes --vocab-size 4096 \
        --algorithm byte_bpe --layout roberta
    python -m pretrain train modernbert_decoder_tiny --workdir runs/modernbert_decoder_tiny
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.modernbert_decoder import ModernBertDecoderConfig
from pretrain.config import Checkpoint, Evaluate, Run, StableAdamW, Train


def config() -> Run:
    return Run(
        model=ModernBertDecoderConfig(
            vocab=4096,
            length=128,
            width=128,
            depth=4,
            num_heads=2,
            mlp=256,
            window=8,
            dropout=0.0,
        ),
        data=Data(store="runs/builtin_bytes", objective=CausalLm(length=64), batch_size=32),
        optimizer=StableAdamW(learning_rate=1e-3, warmup_steps=100),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
