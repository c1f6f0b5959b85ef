r"""A small Transformer on Multi30k, English to German.

29,000 captions of images (Elliott et al. 2016).

    python -m pretrain prepare PAIRS.jsonl --document pair --layout transformer \
        --algorithm bpe --vocab-size 6000 --output runs/multi30k
    python -m pretrain train transformer_multi30k --workdir runs/transformer_multi30k
    python -m pretrain average --workdir runs/transformer_multi30k --last 5 \
        --output runs/transformer_multi30k_mean

PAIRS.jsonl has records with `source` and `target`; benchmarks/papers/translate.py writes it, runs
these commands and translates the test set. 2,400 steps in 59 minutes on a CPU core: 37.0 BLEU on
test_2016_flickr, 38.5 with the averaged checkpoints (benchmarks/results/translate.md).
"""

from data.config import Data
from data.objectives.seq2seq import Seq2Seq
from models.config.transformer import TransformerConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=TransformerConfig(
            vocab=6000, width=192, depth=3, decoder_depth=3, num_heads=4, mlp=512, dropout=0.1
        ),
        data=Data(
            store="runs/multi30k", objective=Seq2Seq(length=96, target_length=96), batch_size=24
        ),
        optimizer=AdamW(
            learning_rate=3e-3,
            warmup_steps=400,
            decay="inverse_square_root",
            weight_decay=0.0,
            beta2=0.98,
            epsilon=1e-9,
            max_grad_norm=0.0,
        ),
        train=Train(steps=2_400, compute_dtype="float32", label_smoothing=0.1),
        evaluate=Evaluate(every=400),
        checkpoint=Checkpoint(every=100, keep=10),
    )
