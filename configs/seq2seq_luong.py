"""Luong's encoder-decoder (2015) on Multi30k (Elliott et al. 2016).

Reversed sources, and attention behind each step of the decoder: the general score, with input
feeding. The paper has `vocab=50000 width=1000 embedding=1000 depth=4`.

    python -m pretrain prepare PAIRS.jsonl --document pair --layout transformer \
        --algorithm bpe --vocab-size 2000 --output runs/multi30k_2000
    python -m pretrain train seq2seq_luong --workdir runs/seq2seq_luong

PAIRS.jsonl has records with `source` and `target`; benchmarks/seq2seq.py writes it, runs these
commands and translates the test set.

900 steps (2.8 epochs) took 8 minutes on two cores of an AMD EPYC beside other programs, 2026-11-25,
and are far from converged: 11.4 BLEU with beam search of 4 on test_2016_flickr.
benchmarks/results/seq2seq.md has the rest.
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
