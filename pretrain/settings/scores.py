"""The held-out scores that choose between checkpoints or runs."""

from typing import get_args

from pretrain.settings.overrides import ConfigError
from pretrain.settings.sections import EMA_SCORE, Evaluate, Metric


def list_scores(evaluate: Evaluate) -> list[str]:
    """Return the names of the scores that choose, which a run with these evaluations measures."""
    scores = ["loss", *(metric for metric in evaluate.metrics if metric in get_args(Metric))]
    return [*scores, *(EMA_SCORE + score for score in scores if evaluate.ema)]


def check_score(evaluate: Evaluate, name: str, argument: str) -> None:
    """Raise ConfigError, which begins with `argument`, unless a run measures the score `name`."""
    known, metric = list_scores(evaluate), name.removeprefix(EMA_SCORE)
    if name in known:
        return
    remedies, choices = [], f"choose {' or '.join(known)}"
    if metric not in ("loss", *get_args(Metric)):
        others = ", ".join(other for other in get_args(Metric) if other not in known)
        raise ConfigError(f"{argument} is no score: {choices}; evaluate.metrics may add {others}")
    if metric not in known:
        remedies.append(f"add {metric} to evaluate.metrics")
    if name != metric and not evaluate.ema:
        remedies.append("set evaluate.ema=true")
    raise ConfigError(f"{argument} is not measured: {' and '.join(remedies)}, or {choices}")
