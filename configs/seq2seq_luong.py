"""LSTMs with Luong's attention (Luong et al. 2015).

Reversed sources, the general score after each decoder step, and input feeding; the paper has
`vocab=50000 width=1000 embedding=1000 depth=4`. Store as in seq2seq_bahdanau.

    python -m pretrain train seq2seq_luong --workdir runs/seq2seq_luong

900 steps in 8 minutes on two CPU cores, far from converged: 11.4 BLEU
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
            score="general",
            input_feeding=True,
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
