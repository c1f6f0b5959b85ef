"""ESM C, 600 M (ESM Team 2024).

36 layers of width 1,152, with gated networks. The recipe is not theirs, but the one
of ESM-2 (Lin et al. 2023): 500,000 steps of 2 M letters, 15 % of them masked, in rows of 1,024.

    python -m pretrain prepare FASTA --vocabulary alphabet:esmc --output proteins
    python -m pretrain train esmc_600m --workdir runs/esmc_600m data.store=proteins

FASTA has your proteins; theirs are of UniRef, MGnify and the JGI. This run packs rows. Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.esmc import EsmcConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=EsmcConfig(width=1152, depth=36, num_heads=18, mlp=3072),
        data=Data(objective=MaskedLm(length=1024, max_predictions=154), batch_size=2048),
        optimizer=AdamW(
            learning_rate=4e-4,
            warmup_steps=2000,
            decay_steps=450_000,
            end_lr_ratio=0.1,
            beta2=0.98,
            epsilon=1e-8,
        ),
        train=Train(steps=500_000),
    )
