"""Read and write a Hugging Face config.json by the key rules of a family."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from models.config.base import Config
from pretrain.families.key_rules import (
    Constant,
    Fixed,
    Key,
    KeyRules,
    Same,
    name_aliases,
    name_keys,
    select,
)


def read_keys(hf_config: Mapping[str, Any], kind: type[Config], rules: KeyRules) -> dict[str, Any]:
    """Return {our field: value} for a configuration class from the content of a config.json.

    Raises:
      ValueError: names the key, the value seen, and what is allowed.
    """
    theirs = drop_nulls(hf_config)
    for rule in select(rules, Fixed):
        _check_fixed(theirs, kind, rule)
    if "quantization_config" in theirs:
        raise ValueError("quantization_config: quantised weights cannot be imported")
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    ours = {rule.ours: rule.value for rule in select(rules, Constant)}
    for rule in select(rules, Key):
        absent = rule.absent(theirs) if callable(rule.absent) else rule.absent
        value = theirs.get(rule.theirs, absent)
        ours[rule.ours] = _check_type(rule.theirs, value, types[rule.ours])
    values = {key: ours[field] for field, key in name_keys(rules).items()}
    for twin, key in select(rules, Same):
        if theirs.get(twin, values[key]) != values[key]:
            raise ValueError(
                f"{twin} is {theirs[twin]!r} and {key} {values[key]!r}; {kind.__name__} has one "
                "for both"
            )
    return ours


def _check_fixed(theirs: Mapping[str, Any], kind: type[Config], rule: Fixed) -> None:
    """Raise ValueError unless a key has the value that our model supports."""
    absent = rule.value if rule.absent is None else rule.absent
    if (value := theirs.get(rule.theirs, absent)) != rule.value and value not in rule.also:
        raise ValueError(f"{rule.theirs} is {value!r}; {kind.__name__} knows only {rule.value!r}")


def drop_nulls(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are not null; null means the same as an absent key."""
    return {key: value for key, value in hf_config.items() if value is not None}


def flatten_parts(hf_config: Mapping[str, Any], rules: KeyRules) -> dict[str, Any]:
    """Return the entries of a config.json; the key of a nested entry is "part.key".

    rules: the rules of its keys, which name the parts.

    Raises:
      ValueError: a part is no object.
    """
    theirs = dict(hf_config)
    names = [rule.theirs for rule in (*select(rules, Key), *select(rules, Fixed))]
    for part in dict.fromkeys(name.partition(".")[0] for name in names if "." in name):
        entries = theirs.pop(part, None) or {}
        if not isinstance(entries, Mapping):
            raise ValueError(f"{part} is {entries!r:.80}; expected an object of settings")
        theirs |= {f"{part}.{key}": value for key, value in entries.items()}
    return theirs


def nest_parts(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a config.json, whose parts are objects; undoes `flatten_parts`."""
    nested: dict[str, Any] = {}
    for name, value in entries.items():
        part, dot, key = name.partition(".")
        if dot:
            nested.setdefault(part, {})[key] = value
        else:
            nested[name] = value
    return nested


def replace_aliases(hf_config: Mapping[str, Any], rules: KeyRules) -> dict[str, Any]:
    """Return the entries that are not null, each under the name of its key.

    Raises:
      ValueError: a key is there under two names, with two values.
    """
    theirs = drop_nulls(hf_config)
    for alias, key in name_aliases(rules).items():
        value = theirs.pop(alias, None)
        if value is not None and theirs.setdefault(key, value) != value:
            raise ValueError(
                f"{alias} is {value!r:.80} and {key} {theirs[key]!r:.80}, two names of one setting "
                "in transformers; delete the wrong one"
            )
    return theirs


def write_keys(config: Any, rules: KeyRules, architecture: str) -> dict[str, Any]:
    """Return the entries of config.json that define the computation of a model.

    Raises:
      ValueError: a field has another value than the only one of the architecture.
    """
    for field, only in select(rules, Constant):
        if (value := getattr(config, field)) != only:
            raise ValueError(
                f"model.{field}={value:g} cannot be exported: {architecture} has {only:g}"
            )
    keys = {rule.theirs: getattr(config, rule.ours) for rule in select(rules, Key)}
    fixed = {rule.theirs: rule.value for rule in select(rules, Fixed) if rule.written}
    return keys | fixed | {twin: keys[key] for twin, key in select(rules, Same)}


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
