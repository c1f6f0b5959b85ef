"""ESM-2, 8 M (Lin et al. 2023).

6 layers of width 320. 500,000 steps of 2 M letters, 15 % of them masked, in rows of 1,024.
The rate falls to a tenth over the first 90 % of the steps.

    python -m pretrain prepare FASTA --vocabulary alphabet:esm2 --output proteins
    python -m pretrain train esm2_8m --workdir runs/esm2_8m data.store=proteins

FASTA is theirs of UniRef50, or yours. In place of each protein they read some relative of it from
UniRef90, cut to 1,024; this run reads FASTA as it is and packs rows. Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.esm2 import Esm2Config
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=Esm2Config(),
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
