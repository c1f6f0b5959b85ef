"""A tiny ESM C (ESM Team 2024) for proteins.

4 layers of width 128. A first run on the sequences of a FASTA file, as esm2_tiny.

    python -m pretrain prepare FASTA --vocabulary alphabet:esmc --output runs/chains
    python -m pretrain train esmc_tiny --workdir runs/esmc_tiny
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.esmc import EsmcConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=EsmcConfig(length=128, width=128, depth=4, num_heads=4, mlp=344),
        data=Data(
            store="runs/chains",
            objective=MaskedLm(length=128, max_predictions=20, rows="documents"),
            batch_size=32,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100, beta2=0.98, epsilon=1e-8),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
