"""The groups of parameters of an optimizer, as text. No JAX."""

import math

from pretrain.settings.overrides import ConfigError


def parse_group(text: str) -> tuple[str, float, float]:
    """Return (pattern, factor of the rate, factor of the weight decay) of an item of `groups`."""
    pattern, *factors = text.split(":")
    try:
        rate, decay = (float(factor) for factor in (*factors, *["1"] * (2 - len(factors))))
    except ValueError:
        rate = decay = -1.0
    if not pattern or not factors or not (0 <= rate < math.inf and 0 <= decay < math.inf):
        raise ConfigError(
            f"optimizer.groups={text}: not PATTERN:RATE or PATTERN:RATE:DECAY with factors of at "
            "least 0, such as token_embedding:0.1"
        )
    return pattern, rate, decay
