"""Their config.json <-> our configuration: which key is which field, and which settings there is only one choice of."""

import dataclasses
from typing import Any


def read(hf_config, kind, fields, fixed) -> dict[str, Any]:
    """{our field: value} for the dataclass `kind` from the dict of a config.json.

    fields: rows of (our field, their key, what an absent key means); fixed: {their key: the only supported value}.
    Raises ValueError that names the key, the value seen, and what is allowed.
    """
    hf_config = present(hf_config)
    for key, only in fixed.items():
        if (value := hf_config.get(key, only)) != only:
            raise ValueError(f"{key} is {value!r}; {kind.__name__} knows only {only!r}")
    if "quantization_config" in hf_config:
        raise ValueError("quantization_config: quantised weights cannot be imported")
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    return {
        ours: _typed(key, hf_config.get(key, default), types[ours]) for ours, key, default in fields
    }


def present(hf_config):
    """The dict without the keys that are null, which means the same as absent."""
    return {key: value for key, value in hf_config.items() if value is not None}


def write(config, fields, fixed):
    """The part of a config.json that says how the model is computed."""
    return {key: getattr(config, ours) for ours, key, _ in fields} | fixed


def _typed(key, value, kind):
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{key} is {value!r}; expected {kind.__name__}")
    return value
