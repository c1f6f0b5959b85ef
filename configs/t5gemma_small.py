"""T5Gemma-small (Zhang et al. 2025): UL2's denoisers.

8 + 8 layers of width 512. 313 M parameters with Gemma's 256,000 tokens, 262 M of them in the two
tables of tokens; `model.vocab` follows the store.

    python -m pretrain prepare TEXTS --output runs/ul2 --vocab-size 32000 --layout ul2
    python -m pretrain train t5gemma_small --workdir runs/t5gemma_small data.store=runs/ul2

The authors released models of UL2's denoisers and of prefix LM with distillation. We do not know
their rate, batch, rows, steps or shares of the denoisers: here the denoisers are UL2's table 1 in
equal shares, rows have 512 tokens, and optimizer and steps follow t5_v1_1_base. The decoder
begins with </s>, because a store of this layout has no <bos>.

Not run.
"""

from data.config import Data
from data.mixed import Mixed, MixedPart
from data.objectives.span_corruption import SpanCorruption
from models.config.t5gemma import T5GemmaConfig
from pretrain.config import Adafactor, Run, Train

DENOISERS = {  # name: mode token, mean span, share of the tokens that is removed
    "r3": ("[NLU]", 3.0, 0.15),
    "r8": ("[NLU]", 8.0, 0.15),
    "s": ("[S2S]", 512.0, 0.25),
    "x3": ("[NLG]", 3.0, 0.5),
    "x8": ("[NLG]", 8.0, 0.5),
    "x64": ("[NLG]", 64.0, 0.15),
    "x64_half": ("[NLG]", 64.0, 0.5),
}


def config() -> Run:
    parts = tuple(
        MixedPart(
            name,
            SpanCorruption(inputs=512, noise_density=density, mean_span=span, mode=mode),
        )
        for name, (mode, span, density) in DENOISERS.items()
    )
    return Run(
        model=T5GemmaConfig(
            width=512, depth=8, decoder_depth=8, num_heads=8, num_key_heads=8, mlp=1024, start=1
        ),
        data=Data(objective=Mixed(parts), batch_size=112),
        optimizer=Adafactor(learning_rate=1.0, warmup_steps=10_000),
        train=Train(steps=2**19),
    )
