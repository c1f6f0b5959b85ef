"""The members of a sweep: every combination of the values that its arguments list."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence

from pretrain.settings.overrides import ConfigError, parse_override

MAX_MEMBERS = 1_000
MAX_NAME = 100  # characters of the name of a member, which is a folder
UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")  # in a value as a part of a name
BRACKETS = {"(": ")", "[": "]"}


def list_members(
    arguments: Sequence[str], number: int | None = None, seed: int = 0
) -> dict[str, list[str]]:
    """Return {name: overrides} of the members of a sweep.

    Args:
      arguments: `path=value` of all members, or `path=a,b,c` with the values to combine. A value
        that has commas of its own stands in brackets: `data.objective.ngrams=(1,2),(1,3)`.
      number: how many members to draw at random, without repetition; None: all combinations.
      seed: of the draw.

    Raises:
      ConfigError: nothing varies, a key or value is given twice, or there are too many members.
    """
    choices = read_choices(arguments)
    varied = [path for path, values in choices.items() if len(values) > 1]
    if not varied:
        raise ConfigError(
            "a sweep needs a field with several values, such as optimizer.learning_rate=1e-4,3e-4"
        )
    total = math.prod(map(len, choices.values()))
    if number is not None and not 1 <= number <= total:
        raise ConfigError(
            f"--random {number}: the sweep has {total:,} combinations; draw 1 to {total:,} of them"
        )
    if (number or total) > MAX_MEMBERS:
        raise ConfigError(
            f"the sweep has {number or total:,} members, and at most {MAX_MEMBERS:,} are allowed; "
            "draw some by --random N, or list fewer values"
        )
    short = shorten_paths(varied)
    members: dict[str, list[str]] = {}
    for values in draw_combinations(choices, number, seed):
        name = name_member({short[path]: values[path] for path in varied}, members)
        members[name] = [f"{path}={value}" for path, value in values.items()]
    return members


def read_choices(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Return {path: its values}. Raises ConfigError for a path or value that is given twice."""
    choices: dict[str, list[str]] = {}
    for argument in arguments:
        override = parse_override(argument)
        if override.key in choices:
            raise ConfigError(f"{argument}: {override.key} is given twice; list its values once")
        values = [strip_brackets(value.strip()) for value in split_values(override.text)]
        if repeated := next((value for value in values if values.count(value) > 1), None):
            raise ConfigError(f"{argument}: {repeated} is listed twice")
        choices[override.key] = values
    return choices


def split_values(text: str) -> list[str]:
    """Return the parts of a text between the commas that stand in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in BRACKETS) - (character in BRACKETS.values())
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def strip_brackets(value: str) -> str:
    """Return a value without the brackets around all of it; `()` stays."""
    inner = value[1:-1]
    is_enclosed = value[:1] in BRACKETS and value[-1:] == BRACKETS[value[:1]] and inner
    return inner if is_enclosed and is_balanced(inner) else value


def is_balanced(text: str) -> bool:
    """Return whether no bracket closes before it opens."""
    depth = 0
    for character in text:
        depth += (character in BRACKETS) - (character in BRACKETS.values())
        if depth < 0:
            return False
    return depth == 0


def draw_combinations(
    choices: Mapping[str, Sequence[str]], number: int | None, seed: int
) -> Iterator[dict[str, str]]:
    """Yield {path: value} of all combinations, or of `number` random ones, in the same order."""
    if number is None:
        for values in itertools.product(*choices.values()):
            yield dict(zip(choices, values))
        return
    total = math.prod(map(len, choices.values()))
    for index in sorted(random.Random(seed).sample(range(total), number)):
        combination = {}
        for path, values in reversed(list(choices.items())):
            index, position = divmod(index, len(values))
            combination[path] = values[position]
        yield {path: combination[path] for path in choices}


def shorten_paths(paths: Sequence[str]) -> dict[str, str]:
    """Return {path: its last names, as few as tell it from the other paths}."""
    short = {}
    for path in paths:
        names = path.split(".")
        endings = (".".join(names[-count:]) for count in range(1, len(names) + 1))
        others = [f".{other}" for other in paths if other != path]
        own = (name for name in endings if not any(other.endswith(f".{name}") for other in others))
        short[path] = next(own, path)
    return short


def name_member(values: Mapping[str, str], taken: Mapping[str, object]) -> str:
    """Return the name of a member: a folder that no other member has.

    Args:
      values: {short path: value} of what varies.
      taken: the names of other members.
    """
    words = ",".join(f"{path}={value}" for path, value in values.items())
    name = ",".join(f"{path}={UNSAFE.sub('-', value)}" for path, value in values.items())
    if len(name) > MAX_NAME or name in taken:
        digest = hashlib.sha256(words.encode(errors="surrogatepass")).hexdigest()[:8]
        name = f"{name[:MAX_NAME]}-{digest}"
    return name
