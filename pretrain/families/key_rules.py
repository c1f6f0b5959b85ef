"""Rules that map our fields to the keys of a Hugging Face config.json, and back. No JAX.

A family lists them in `HuggingFaceMap.keys`. An export writes each `Key`, then each `Fixed`, then
each `Same`, in the order of the list. An import reads null as an absent key. A rule replaces an
earlier rule for the same field or key, so a family can extend another family's list. A key with a
dot is in a part of config.json: `decoder.hidden_size` is `hidden_size` of the object `decoder`.
"""

from typing import Any, NamedTuple, TypeAlias, TypeVar


class Key(NamedTuple):
    """A field of ours under their key.

    absent: what an absent key means, or (their entries) -> that.
    aliases: other keys that transformers, or the code that the authors released, reads as this one.
    """

    ours: str
    theirs: str
    absent: Any
    aliases: tuple[str, ...] = ()


class Fixed(NamedTuple):
    """A key of which our model supports one value.

    also: other names of the value, which an import accepts too.
    absent: what an absent key means; None: the value.
    written: whether an export writes the key.
    """

    theirs: str
    value: Any
    also: tuple[str, ...] = ()
    absent: Any = None
    written: bool = True


class Same(NamedTuple):
    """A key that must have the value of another key, `other`, which has a `Key`."""

    theirs: str
    other: str


class Constant(NamedTuple):
    """A field of ours that has one value in their model, without a key."""

    ours: str
    value: Any


KeyRule: TypeAlias = Key | Fixed | Same | Constant
KeyRules: TypeAlias = tuple[KeyRule, ...]
AnyRule = TypeVar("AnyRule", Key, Fixed, Same, Constant)

# Further names in transformers of the exact GELU, "gelu", and of its approximation, "gelu_new".
EXACT_GELU = ("gelu_python",)
TANH_GELU = ("gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate")


def read_rotary_base(name: str, parameters: Any) -> Any:
    """Return the base in the settings of rotary positions, as transformers reads them, or None.

    Args:
      name: the settings' key, for messages.
      parameters: the settings; None without any.

    Raises:
      ValueError: they are no object, or of rotary positions with scaling.
    """
    if parameters is None:
        return None
    if not isinstance(parameters, dict):
        raise ValueError(f"{name} is {parameters!r:.80}; expected an object")
    kind = parameters.get("rope_type", parameters.get("type", "default"))  # the second is older
    if kind != "default":
        raise ValueError(
            f"{name} has rope_type {kind!r:.80}; only 'default' is supported, rotary positions "
            "without scaling"
        )
    return parameters.get("rope_theta")


def select(rules: KeyRules, kind: type[AnyRule]) -> list[AnyRule]:
    """Return the rules of a kind; of two for one field or key, the later replaces the earlier."""
    return list({rule[0]: rule for rule in rules if isinstance(rule, kind)}.values())


def name_keys(rules: KeyRules) -> dict[str, str]:
    """Return {our field: its key}."""
    return {rule.ours: rule.theirs for rule in select(rules, Key)}


def name_aliases(rules: KeyRules) -> dict[str, str]:
    """Return {another name of a key: the key}, as `attribute_map` of transformers."""
    return {alias: rule.theirs for rule in select(rules, Key) for alias in rule.aliases}
