"""Transformer-XL, the large model of WikiText-103 (Dai et al. 2019, section 4.1).

285,205,322 parameters, as `transformers` counts its released configuration; the paper says 257 M.
Segments of 384 tokens with a memory of 384, in 128 rows.

    python -m pretrain prepare TEXT --vocabulary VOCABULARY --output text
    python -m pretrain train transformer_xl_large --workdir runs/transformer_xl_large \
        data.store=text

The vocabulary is as in transformer_xl_base. The paper evaluates with a longer memory: set
model.memory=1600 model.clamp_len=1000 model.same_length=true, as the released configuration has
them; they change no parameter. Not run: the project had no accelerator. libtpu 0.0.42.1 crashes
when it compiles this model for a TPU with attention dropout: set model.attention_dropout=0 there.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.transformer_xl import Clusters, TransformerXLConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=TransformerXLConfig(
            width=1_024,
            depth=18,
            num_heads=16,
            head_width=64,
            mlp=4_096,
            dropout=0.2,
            attention_dropout=0.2,
            memory=384,
            clusters=Clusters(divisor=4),
        ),
        data=Data(objective=CausalLm(length=384, order="lanes"), batch_size=128),
        optimizer=AdamW(
            learning_rate=2.5e-4,
            warmup_steps=16_000,
            decay="cosine",
            weight_decay=0.0,
            epsilon=1e-8,
            max_grad_norm=0.25,
        ),
        train=Train(steps=4_000_000),
    )
