r"""BART-large (Lewis et al. 2020, section 5.1).

406 M parameters on 160 GB of text; store, rows and steps as in bart_base.

    python -m pretrain train bart_large --workdir runs/bart_large data.store=english \
        mesh.fsdp=-1 mesh.data=1

Not run.
"""

from data.config import Data
from data.objectives.denoising import Denoising
from models.config.bart import BartConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=BartConfig(width=1024, depth=12, decoder_depth=12, num_heads=16, mlp=4096),
        data=Data(objective=Denoising(length=512), batch_size=8000),
        optimizer=AdamW(
            learning_rate=4e-4,
            warmup_steps=30_000,
            weight_decay=0.01,
            beta2=0.98,
            max_grad_norm=0.0,
        ),
        train=Train(steps=500_000),
    )
