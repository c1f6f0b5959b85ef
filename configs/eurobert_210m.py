r"""EuroBERT-210m (Boizard et al. 2025).

The first of its two phases: rows of 2,048, half of the tokens masked, at a constant rate after the
warmup, with the rotary base 10,000. The second phase masks 10 % in rows of up to 8,192, with the
base 250,000, while the rate falls to 0.

    python -m pretrain prepare CORPUS --algorithm byte_bpe --layout roberta \
        --vocab-size 128256 --output corpus
    python -m pretrain train eurobert_210m --workdir runs/eurobert_210m data.store=corpus

CORPUS is a folder of text; theirs has 5 T tokens in 15 languages, and Llama 3's vocabulary. The
optimizer and the masks follow the authors' library, Optimus. The batch size, the steps (5 T tokens)
and the length of the warmup are ours. Not run.
"""

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from models.config.eurobert import EuroBertConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=EuroBertConfig(rotary_base=10_000.0),
        data=Data(
            objective=MaskedLm(length=2048, max_predictions=1024, mask_rate=0.5, masks_only=True),
            batch_size=2048,
        ),
        optimizer=AdamW(
            learning_rate=1e-4,
            warmup_steps=2000,
            end_lr_ratio=1.0,
            weight_decay=0.1,
            beta2=0.95,
            epsilon=1e-5,
        ),
        train=Train(steps=1_192_093),
    )
