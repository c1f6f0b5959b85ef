r"""LSTMs and additive attention (Bahdanau et al. 2015).

LSTM cells on Multi30k (Elliott et al. 2016): a bidirectional encoder, and additive attention before
each decoder step. The defaults of Seq2SeqLstmConfig are the paper's sizes.

    python -m pretrain prepare PAIRS.jsonl --document pair --layout transformer \
        --algorithm bpe --vocab-size 2000 --output runs/multi30k_2000
    python -m pretrain train seq2seq_bahdanau --workdir runs/seq2seq_bahdanau

PAIRS.jsonl has records with `source` and `target`; benchmarks/papers/seq2seq.py writes it, runs
these commands and translates the test set. 900 steps in 11 minutes on two CPU cores, far from
converged: 19.4 BLEU, beam search of 4 (benchmarks/results/seq2seq.md).
"""

from data.config import Data
from data.objectives.seq2seq import Seq2Seq
from models.config.seq2seq_lstm import Seq2SeqLstmConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train


def config() -> Run:
    return Run(
        model=Seq2SeqLstmConfig(
            vocab=2000,
            width=128,
            embedding=128,
            mlp=128,
            direction="bidirectional",
            score="additive",
            dropout=0.1,
        ),
        data=Data(
            store="runs/multi30k_2000",
            objective=Seq2Seq(length=48, target_length=48),
            batch_size=48,
        ),
        optimizer=AdamW(
            learning_rate=4e-3, warmup_steps=100, weight_decay=0.0, beta2=0.98, max_grad_norm=1.0
        ),
        train=Train(steps=900, compute_dtype="float32", label_smoothing=0.1),
        evaluate=Evaluate(every=300),
        checkpoint=Checkpoint(every=300),
    )
