"""Settings of JAX that no command of Cloze works with, and one line for JAX's errors about others.

JAX reads them from the environment (JAX_ENABLE_X64=1) when it is imported, and in a notebook from
`jax.config.update("jax_enable_x64", True)`. Add a setting to REFUSED, and `main`, `doctor` and the
functions of `pretrain.api` refuse it. Imports no JAX.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pretrain.settings.overrides import ConfigError

TRUE = ("1", "true", "t", "yes", "y", "on")  # as JAX reads a switch
FALSE = ("0", "false", "f", "no", "n", "off")
MAX_VALUE = 80  # characters of a value in a message


class RefusedValues(NamedTuple):
    """Values of a setting that are refused, in lower case, what they do, and a sound one."""

    values: tuple[str, ...]
    effect: str
    sound: Any = None


NO_TRANSFERS = RefusedValues(
    ("disallow", "disallow_explicit"),
    "forbids the copies between host and devices that a run makes",
)
# {name in jax.config: what is refused}; in the environment its name is in upper case.
REFUSED = {
    "jax_enable_x64": RefusedValues(
        TRUE, "computes in 64 bits, and checkpoints have parameters of 32 bits"
    ),
    "jax_transfer_guard": NO_TRANSFERS,
    "jax_transfer_guard_host_to_device": NO_TRANSFERS,
    "jax_transfer_guard_device_to_host": NO_TRANSFERS,
    "jax_transfer_guard_device_to_device": NO_TRANSFERS,
    "jax_disable_jit": RefusedValues(
        TRUE, "runs without compiled programs, which every command needs"
    ),
    "jax_default_prng_impl": RefusedValues(
        ("rbg", "unsafe_rbg"),
        "makes another model of the same seed, and no file would say so",
        "threefry2x32",
    ),
    "jax_threefry_partitionable": RefusedValues(
        FALSE, "makes another model of the same seed, and no file would say so", True
    ),
    "jax_numpy_rank_promotion": RefusedValues(
        ("raise",), "forbids to broadcast arrays of different ranks, which the models do"
    ),
}
# JAX's errors about a setting, with the groups `name` and `value`.
INVALID_VALUE = (
    re.compile(r'Invalid value "(?P<value>.*)" for JAX flag (?P<name>jax_\w+)'),
    re.compile(r"invalid truth value '(?P<value>.*)' for environment '(?P<name>JAX_\w+)'"),
)
NO_BACKEND = re.compile(r"Unable to initialize backend '(\w+)'|Unknown backend:? '?(\w+)")


def check_jax_settings(environ: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError if a setting of JAX is one of REFUSED.

    Args:
      environ: read if JAX is not imported, by default the process's.
    """
    for line in list_refused(os.environ if environ is None else environ):
        raise ConfigError(line)


def list_refused(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each setting of JAX that is refused.

    JAX reads the environment once: where it is imported, its own configuration is what counts.
    """
    jax = sys.modules.get("jax")
    for name, refusal in REFUSED.items():
        if jax:
            value, word = getattr(jax.config, name, None), f"jax.config.{name}"
            sound = False if value is True else refusal.sound
            remedy = f'jax.config.update("{name}", {sound!r})'
        else:
            value, word, remedy = environ.get(name.upper()), name.upper(), f"unset {name.upper()}"
        if value is not None and _normalize(value) in refusal.values:
            yield f"{word}={value} {refusal.effect}: {remedy}"


def _normalize(value: Any) -> str:
    return str(value).strip().lower()


def explain_jax_error(error: BaseException, environ: Mapping[str, str] | None = None) -> str:
    """Return one line for JAX's error about a setting or an absent backend; "" for any other."""
    environ, text = os.environ if environ is None else environ, str(error)
    for pattern in INVALID_VALUE:
        if found := pattern.search(text):
            name, value = found["name"].upper(), found["value"][:MAX_VALUE]
            return f"{name}={value}: JAX does not take this value; unset {name}"
    if isinstance(error, RuntimeError) and (found := NO_BACKEND.search(text)):
        return describe_absent_backend(found[1] or found[2], text, environ)
    return ""


def describe_absent_backend(backend: str, text: str, environ: Mapping[str, str]) -> str:
    """Return one line about a backend that JAX cannot open.

    Args:
      backend: its name in JAX's error.
      text: JAX's error.
      environ: its JAX_PLATFORMS, or its older name, may have asked for the backend.
    """
    reason = text.splitlines()[0].partition(": ")[2][:300] or text[:300]
    for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_NUM_CPU_DEVICES"):
        if value := environ.get(name):
            return (
                f"{name}={value[:MAX_VALUE]}: JAX cannot open the backend {backend!r} ({reason}); "
                f"unset {name} to use what this machine has, or see `doctor`"
            )
    return f"JAX cannot open the backend {backend!r} ({reason}); see `doctor`"
