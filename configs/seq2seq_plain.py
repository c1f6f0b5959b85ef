"""LSTMs without attention (Sutskever et al. 2014).

Reversed sources; the decoder reads the encoder's last state alone. The paper has `width=1000
embedding=1000 depth=4`. Store as in seq2seq_bahdanau.

    python -m pretrain train seq2seq_plain --workdir runs/seq2seq_plain

900 steps in 7 minutes on two CPU cores, far from converged: 5.5 BLEU
(benchmarks/results/seq2seq.md).
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
            direction="backward",
            score=None,
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
