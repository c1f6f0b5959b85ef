r"""XLNet-large (Yang et al. 2019, appendix A.4.1).

360 M parameters; 8,192 rows of 512 tokens a step, 500,000 steps on 33 billion tokens.

    python -m pretrain prepare tfds:wikipedia/20230601.en BOOKS WEB --vocab-size 32000 \
        --output english_32k
    python -m pretrain train xlnet_large --workdir runs/xlnet_large data.store=english_32k

BOOKS and WEB are folders of text. The paper's rows continue each other, half of them backwards
(section 3.1), and its learning rate ends at a thousandth; ours are shuffled, all forwards, and end
at 0. Cost: 5.5 days on 512 TPU v3 chips in the paper. Not run.
"""

from data.config import Data
from data.objectives.permutation_lm import PermutationLm
from models.config.xlnet import XLNetConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=XLNetConfig(width=1024, depth=24, num_heads=16, mlp=4096),
        data=Data(objective=PermutationLm(length=512), batch_size=8192),
        optimizer=AdamW(learning_rate=4e-4, warmup_steps=40_000, weight_decay=0.01, epsilon=1e-6),
        train=Train(steps=500_000),
    )
