r"""A tiny GPT-BERT (Charpentier and Samuel 2024).

4 layers of width 128, the paper's layers and its hybrid. Half of the rows are masked, with
bidirectional attention, and half are causal.

    python -m pretrain prepare builtin --output runs/builtin_bytes --vocab-size 4096 \
        --algorithm byte_bpe --layout roberta
    python -m pretrain train gpt_bert_tiny --workdir runs/gpt_bert_tiny
"""

from data.config import Data
from data.mixed import Mixed, MixedPart
from data.objectives.causal_lm import CausalLm
from data.objectives.masked_next_token import MaskedNextToken
from models.config.gpt_bert import GptBertConfig
from pretrain.config import Checkpoint, Evaluate, Lamb, Run, Train


def config() -> Run:
    masked = MaskedNextToken(length=64, max_predictions=19, mask_rate=0.3)
    return Run(
        model=GptBertConfig(
            vocab=4096,
            length=128,
            width=128,
            depth=4,
            num_heads=2,
            mlp=320,
            max_distance=128,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/builtin_bytes",
            objective=Mixed(
                (MixedPart("masked", masked), MixedPart("causal", CausalLm(length=64)))
            ),
            batch_size=32,
        ),
        optimizer=Lamb(
            learning_rate=1e-2,
            warmup_steps=50,
            beta2=0.98,
            epsilon=1e-8,
            weight_decay=0.1,
            max_grad_norm=2.0,
        ),
        train=Train(steps=1500, compute_dtype="float32", z_loss=1e-4),
        evaluate=Evaluate(every=500),
        checkpoint=Checkpoint(every=500),
    )
