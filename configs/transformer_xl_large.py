r"""Transformer-XL, large (Dai et al. 2019).

285,205,322 parameters, as `transformers` counts them (257 M in the paper); 128 rows of 384 tokens
with a memory of 384. Vocabulary as in transformer_xl_base.

    python -m pretrain train transformer_xl_large --workdir runs/transformer_xl_large \
        data.store=text

The paper evaluates with a longer memory: set model.memory=1600 model.clamp_len=1000
model.same_length=true, as the released configuration does. libtpu 0.0.42.1 crashes when it compiles
attention dropout here: set model.attention_dropout=0 on a TPU. Not run.
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
