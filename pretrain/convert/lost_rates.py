"""The dropout rates of a model for which transformers has no key in config.json."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from pretrain.convert import find_model_family
from pretrain.convert.read_write import find_converter


def list_lost_rates(config: Any, encoding: Any) -> list[str]:
    """Return a line for each dropout rate of a model that an import of its export has not.

    The scores do not depend on it; training that goes on from the export does.

    Args:
      config: the model's configuration.
      encoding: its vocabulary, or the classes of its images.

    Raises:
      ValueError: transformers has no such model.
    """
    if not find_model_family(config).require_hugging_face().imported:
        return []
    converter = find_converter(config)
    again = converter.from_hf_config(converter.to_hf_config(config, encoding))
    before, after = dict(list_rates(config)), dict(list_rates(again))
    return [
        f"model.{path}={rate:g} is not in config.json, as transformers has no key for it: training "
        f"that starts from the export has {after[path]:g}"
        for path, rate in before.items()
        if path in after and after[path] != rate
    ]


def list_rates(config: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield (field, rate) of the dropout rates of a configuration and of its encoder."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name == "encoder":
            yield from list_rates(value, "encoder.")
        elif field.name.endswith("dropout") and isinstance(value, float):
            yield f"{prefix}{field.name}", value
