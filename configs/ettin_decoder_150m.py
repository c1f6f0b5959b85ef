r"""Ettin's decoder, 150 M (Weller et al. 2025).

The first of its three phases: 1.7 T tokens in rows of 1,024 at a constant rate after the warmup.
Rotary positions have the base 10,000 in all layers; a later phase with rows of 7,999 raises it to
160,000.

    python -m pretrain prepare CORPUS --algorithm byte_bpe --layout roberta \
        --vocab-size 50368 --output corpus
    python -m pretrain train ettin_decoder_150m --workdir runs/ettin_decoder data.store=corpus

CORPUS is a folder of text. The authors raise the batch from a small one; this run has one batch
size. `train modernbert_base --from runs/ettin_decoder` makes an encoder of it. Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.modernbert_decoder import ModernBertDecoderConfig
from pretrain.config import Run, StableAdamW, Train


def config() -> Run:
    return Run(
        model=ModernBertDecoderConfig(global_rotary_base=10_000.0),
        data=Data(objective=CausalLm(length=1024), batch_size=4608),
        optimizer=StableAdamW(
            learning_rate=8e-4,
            warmup_steps=636,
            decay="constant",
            weight_decay=1e-5,
        ),
        train=Train(steps=360_277),
    )
