"""One file a family: its record and its map of parameter names to those of Hugging Face transformers. No JAX.

FAMILIES has the record of every file in this folder that defines a `FAMILY`, by its name. Nothing else lists families.
"""

import importlib
import pkgutil

from pretrain.families.record import Family


def find_families() -> dict[str, Family]:
    """Return {name: record}, in the order of the files' names. Raises ValueError where a record has another name than its file."""
    found = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        family = getattr(importlib.import_module(f"{__name__}.{name}"), "FAMILY", None)
        if family is not None:
            if family.name != name:
                raise ValueError(
                    f"pretrain/families/{name}.py: FAMILY.name is {family.name!r}, not {name!r}"
                )
            found[name] = family
    return found


FAMILIES = find_families()


def family_of(config) -> Family:
    """Return the record of the family that a model's configuration belongs to. Raises ValueError where there is none."""
    for family in FAMILIES.values():
        if type(config) is family.config:
            return family
    known = ", ".join(family.config.__name__ for family in FAMILIES.values())
    raise ValueError(
        f"no family has a {type(config).__name__}; the records in pretrain/families have {known}"
    )


def find_by_model_type(model_type) -> Family:
    """Return the family that a Hugging Face folder of this `model_type` is imported as. Raises ValueError where there is none."""
    found = {
        family.hugging_face.model_type: family
        for family in FAMILIES.values()
        if family.hugging_face.imported
    }
    if model_type not in found:
        raise ValueError(
            f"no family has the model_type {model_type!r}; there are {', '.join(found)}"
        )
    return found[model_type]
