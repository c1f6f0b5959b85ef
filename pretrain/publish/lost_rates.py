"""The dropout rates of a model that transformers does not read in its config.json."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from pretrain.convert import find_model_family
from pretrain.convert.head_maps import EMBEDDER, HEAD_CONVERSIONS
from pretrain.convert.read_write import find_converter


def list_lost_rates(config: Any, encoding: Any) -> list[str]:
    """Return a line for each dropout rate that transformers, or an import, does not read again.

    The scores do not depend on it; training that goes on from the export does.

    Args:
      encoding: its vocabulary, or the classes of its images.

    Raises:
      ValueError: transformers has no such model.
    """
    family = find_model_family(config)
    family.require_hugging_face()
    if not family.is_imported:
        return []
    converter = find_converter(config)
    # The pooling of an embedder is in files of its own.
    steps = {EMBEDDER: {}} if isinstance(config, EmbedderConfig) else {}
    again = converter.from_hf_config(converter.to_hf_config(config, encoding) | steps)
    lines = describe_fixed_rate(config) if isinstance(config, HeadedConfig) else []
    before, after = dict(list_rates(config)), dict(list_rates(again))
    return lines + [
        f"model.{path}={rate:g} is not in config.json, as transformers has no key for it: training "
        f"that starts from the export has {after[path]:g}"
        for path, rate in before.items()
        if path in after and after[path] != rate
    ]


def describe_fixed_rate(config: HeadedConfig) -> list[str]:
    """Return a line if transformers trains a head with another rate than its key says."""
    head_map = find_model_family(config).require_hugging_face().fine_tuned_names
    suffix = HEAD_CONVERSIONS[type(config)].suffix
    if suffix not in head_map.fixed_dropout:
        return []
    fixed = config.encoder.dropout if head_map.fixed_dropout[suffix] else 0.0
    if config.dropout == fixed:
        return []
    return [
        f"model.dropout={config.dropout:g} is not read by transformers: a "
        f"{head_map.name_class(suffix)} has {fixed:g} there"
    ]


def list_rates(config: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield (field, rate) of the dropout rates of a configuration and of its encoder."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "encoder":
            yield from list_rates(value, "encoder.")
        elif field.name.endswith("dropout") and isinstance(value, float):
            yield f"{prefix}{field.name}", value
