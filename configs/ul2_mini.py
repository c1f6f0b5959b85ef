r"""UL2's seven denoisers (Tay et al. 2022) on a T5.

A T5-mini with the denoisers of table 1, as many rows each: R ([NLU]) has short spans, S
([S2S]) one span at the end, X ([NLG]) long or many spans; the mode tokens are the released ones.
Rows have 128 tokens, a quarter of the paper's, so the longest spans have 16 tokens, not 64.

    python -m pretrain prepare BOOKS ARTICLES --output runs/books_ul2 --held-out 0.03 \
        --vocab-size 8192 --layout ul2
    python -m pretrain train ul2_mini --workdir runs/ul2_mini

1,000 steps in 14 minutes of training and 9 of evaluation on two CPU cores, not converged: held-out
loss 5.31 nats a label (benchmarks/results/small_runs.md).
"""

from data.config import Data
from data.mixed import Mixed, MixedPart
from data.objectives.span_corruption import SpanCorruption
from models.config.t5 import T5Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train

DENOISERS = {  # name: mode token, mean span, share of the tokens that is removed
    "r3": ("[NLU]", 3.0, 0.15),
    "r8": ("[NLU]", 8.0, 0.15),
    "s": ("[S2S]", 128.0, 0.25),
    "x3": ("[NLG]", 3.0, 0.5),
    "x8": ("[NLG]", 8.0, 0.5),
    "x16": ("[NLG]", 16.0, 0.15),
    "x16_half": ("[NLG]", 16.0, 0.5),
}


def config() -> Run:
    parts = tuple(
        MixedPart(
            name,
            SpanCorruption(inputs=128, noise_density=density, mean_span=span, mode=mode),
        )
        for name, (mode, span, density) in DENOISERS.items()
    )
    return Run(
        model=T5Config(
            vocab=8192,
            width=256,
            depth=4,
            decoder_depth=4,
            num_heads=4,
            head_width=64,
            mlp=1024,
            dropout=0.0,
        ),
        data=Data(store="runs/books_ul2", objective=Mixed(parts), batch_size=14),
        optimizer=AdamW(
            learning_rate=1e-2, warmup_steps=200, weight_decay=0.0, scale_by_param_rms=True
        ),
        train=Train(steps=1_000, compute_dtype="float32"),
        evaluate=Evaluate(every=250, patience=3),
        checkpoint=Checkpoint(every=250, best="loss"),
    )
