"""Music Transformer, piano (Huang et al. 2018).

6 layers of width 256, 9.6 M parameters; rows of 2,048 events, 1,024 distances (section 4.2). MIDI
is a folder of MIDI files, such as the MAESTRO data set.

    python -m pretrain prepare-music MIDI --output performances --encoding events --transpose 3
    python -m pretrain train music_transformer --workdir runs/music data.store=performances

The paper also stretches pieces in time, which Cloze does not. Batch size, learning rate and steps
are ours. Not run.
"""

from data.config import Data
from data.objectives.causal_lm import CausalLm
from models.config.music_transformer import MusicTransformerConfig
from pretrain.config import AdamW, Run, Train


def config() -> Run:
    return Run(
        model=MusicTransformerConfig(),
        data=Data(objective=CausalLm(length=2_048), batch_size=32),
        optimizer=AdamW(
            learning_rate=1e-3, warmup_steps=4_000, decay="cosine", beta2=0.98, max_grad_norm=1.0
        ),
        train=Train(steps=100_000),
    )
