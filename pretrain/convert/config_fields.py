"""Convert the fields of a Hugging Face config.json to the fields of our configurations."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from models.config.base import Config
from pretrain.families.family_record import Fields


def read_fields(
    hf_config: Mapping[str, Any],
    kind: type[Config],
    fields: Fields,
    fixed: Mapping[str, Any],
    same_values: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Return {our field: value} for a configuration class from the content of a config.json.

    Args:
      hf_config: the content of config.json.
      kind: our configuration class.
      fields: rows of (our field, their key, value of an absent key).
      fixed: {their key: the only supported value}.
      same_values: {their key: further names of that value}.

    Raises:
      ValueError: names the key, the value seen, and what is allowed.
    """
    hf_config = drop_nulls(hf_config)
    for key, only in fixed.items():
        if (value := hf_config.get(key, only)) != only and value not in same_values.get(key, ()):
            raise ValueError(f"{key} is {value!r}; {kind.__name__} knows only {only!r}")
    if "quantization_config" in hf_config:
        raise ValueError("quantization_config: quantised weights cannot be imported")
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    return {
        ours: _check_type(key, hf_config.get(key, default), types[ours])
        for ours, key, default in fields
    }


def drop_nulls(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are not null; null means the same as an absent key."""
    return {key: value for key, value in hf_config.items() if value is not None}


def replace_aliases(hf_config: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries that are not null, each under the name of its key.

    Args:
      hf_config: the content of config.json.
      aliases: {another name of a key: the key}, as in `attribute_map` of transformers.

    Raises:
      ValueError: a key is there under two names, with two values.
    """
    theirs = drop_nulls(hf_config)
    for alias, key in aliases.items():
        value = theirs.pop(alias, None)
        if value is not None and theirs.setdefault(key, value) != value:
            raise ValueError(
                f"{alias} is {value!r:.80} and {key} {theirs[key]!r:.80}, two names of one setting "
                "in transformers; delete the wrong one"
            )
    return theirs


def write_fields(config: Config, fields: Fields, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of config.json that define the computation of a model."""
    return {key: getattr(config, ours) for ours, key, _ in fields} | dict(fixed)


def _check_type(key: str, value: Any, kind: Any) -> Any:
    """Return a value, an int as float where a float is expected. Raises ValueError otherwise."""
    if choices := get_args(kind):  # of a Literal
        if value not in choices:
            raise ValueError(f"{key} is {value!r:.80}; expected one of {', '.join(choices)}")
        return value
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{key} is {value!r:.80}; expected {kind.__name__}")
    return value
