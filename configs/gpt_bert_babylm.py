r"""A hybrid for BabyLM (Charpentier and Samuel 2024).

GPT-BERT's smaller network, 30 M parameters. Of 16 rows, 15 are masked and one is causal (section
3.2). The mask rate falls from 30 % to 15 %. A step has 128 rows, the paper's 32,768; its spans and
its longer rows at the end are left out.

    python -m pretrain prepare CORPUS --output runs/babylm --vocab-size 8192 \
        --algorithm byte_bpe --layout roberta
    python -m pretrain train gpt_bert_babylm --workdir runs/gpt_bert_babylm

6,000 steps read 98 million tokens. BabyLM's rules allow 10 epochs of 10 million words: the start
prints the words and epochs of your text (docs/babylm.md).

Not run.
"""

from data.config import Data, Ramp
from data.mixed import Mixed, MixedPart
from data.objectives.causal_lm import CausalLm
from data.objectives.masked_next_token import MaskedNextToken
from models.config.gpt_bert import GptBertConfig
from pretrain.config import Checkpoint, Evaluate, Lamb, Run, Train

MILLION = 1_000_000
STEPS = 6_000


def config() -> Run:
    masked = MaskedNextToken(
        length=128,
        max_predictions=39,
        mask_rate=0.15,
        mask_ramp=Ramp(start=0.3, last_step=STEPS),
    )
    return Run(
        model=GptBertConfig(vocab=8192, width=384, num_heads=6, mlp=1280),
        data=Data(
            store="runs/babylm",
            objective=Mixed(
                (
                    MixedPart("masked", masked, share=15),
                    MixedPart("causal", CausalLm(length=128)),
                )
            ),
            batch_size=128,
        ),
        optimizer=Lamb(
            learning_rate=1e-2,
            warmup_steps=96,
            beta2=0.98,
            epsilon=1e-8,
            weight_decay=0.1,
            max_grad_norm=2.0,
            decay="cosine",
        ),
        train=Train(steps=STEPS, z_loss=1e-4, ema_decay=0.999),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(
            every=500,
            words=tuple(n * MILLION for n in (*range(1, 11), *range(20, 101, 10))),
        ),
    )
