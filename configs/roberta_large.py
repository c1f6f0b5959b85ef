r"""RoBERTa-large (Liu et al. 2019, table 9).

355 M parameters; store, rows and steps as in roberta_base.

    python -m pretrain train roberta_large --workdir runs/roberta_large data.store=english \
        mesh.fsdp=-1 mesh.data=1

Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.roberta import RobertaConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=RobertaConfig(width=1024, depth=24, num_heads=16, mlp=4096),
        data=Data(
            objective=MaskedLm(length=512, max_predictions=77, rows="sentences"), batch_size=8192
        ),
        optimizer=AdamW(
            learning_rate=4e-4,
            warmup_steps=30_000,
            weight_decay=0.01,
            beta2=0.98,
            max_grad_norm=0.0,
        ),
        train=Train(steps=500_000),
    )
