"""UL2's mixture of denoisers (Tay et al. 2022, section 3.1) on a T5-mini and 28 authors' books.

    python -m pretrain prepare BOOKS ARTICLES --output runs/books_ul2 --held-out 0.03 \
        --vocab-size 8192 --layout ul2
    python -m pretrain train ul2_mini --workdir runs/ul2_mini

It has the seven denoisers of the paper's table 1, each with the same number of rows. R ([NLU]) has
short spans, S ([S2S]) one span at the end of the text, X ([NLG]) long or many spans; the mode
tokens are those of the released checkpoints. A row has 128 tokens, a quarter of the paper's, and
the longest spans therefore have 16 tokens in place of 64.

On two cores of a Xeon with AVX-512, with other programs running, 2026-11-23: 1,000 steps, 2.8
million tokens of inputs and labels of the books and 104 articles of Wikipedia, in 14 minutes of
training and 9 of evaluation. Held-out loss 5.31 nats a label: R 4.82 and 5.23, S 5.50, X 5.13,
5.53, 5.32 and 5.63; 5.25 on the books and 5.96 on the articles. It has not converged.
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
