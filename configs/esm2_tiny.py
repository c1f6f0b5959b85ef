"""A tiny ESM-2 (Lin et al. 2023) for proteins.

4 layers of width 128. A first run on the sequences of a FASTA file. Each is a row of its own, or
several of 126 letters.

    python -m pretrain prepare FASTA --vocabulary alphabet:esm2 --output runs/sequences
    python -m pretrain train esm2_tiny --workdir runs/esm2_tiny
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.esm2 import Esm2Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=Esm2Config(length=128, width=128, depth=4, num_heads=4, mlp=512),
        data=Data(
            store="runs/sequences",
            objective=MaskedLm(length=128, max_predictions=20, rows="documents"),
            batch_size=32,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=100, beta2=0.98, epsilon=1e-8),
        train=Train(steps=1500, compute_dtype="float32"),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
