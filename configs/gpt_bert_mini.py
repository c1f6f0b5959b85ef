r"""GPT-BERT's hybrid (Charpentier and Samuel 2024).

A GPT-2 of BERT-mini's size learns causal rows and, with bidirectional attention, as many masked
rows (section 3). It predicts a masked token one position early, so both give the next token. The
paper's changes to the layers are left out.

    python -m pretrain prepare BOOKS ARTICLES --output runs/books_bytes --held-out 0.03 \
        --vocab-size 8192 --algorithm byte_bpe --layout roberta
    python -m pretrain train gpt_bert_mini --workdir runs/gpt_bert_mini

3,000 steps in 59 minutes on a CPU core: 4.55 nats and 23.9 % right on masked tokens, 4.95 nats and
18.4 % on next tokens (benchmarks/results/small_runs.md).
"""

from data.config import Data
from data.mixed import Mixed, MixedPart
from data.objectives.causal_lm import CausalLm
from data.objectives.masked_next_token import MaskedNextToken
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    masked = MaskedNextToken(length=64, max_predictions=19, mask_rate=0.3)
    return Run(
        model=Gpt2Config(
            vocab=8192,
            length=128,
            width=256,
            depth=4,
            num_heads=4,
            mlp=1024,
            dropout=0.0,
            attention_dropout=0.0,
        ),
        data=Data(
            store="runs/books_bytes",
            objective=Mixed(
                (MixedPart("masked", masked), MixedPart("causal", CausalLm(length=64)))
            ),
            batch_size=32,
        ),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=400, beta2=0.98),
        train=Train(steps=3_000, compute_dtype="float32"),
        evaluate=Evaluate(every=500, patience=3),
        checkpoint=Checkpoint(every=500, best="loss"),
    )
