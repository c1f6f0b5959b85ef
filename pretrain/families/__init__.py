"""The families of models: one file each, with its record and its map to Hugging Face transformers.

FAMILIES has the record of every file in this folder that defines a `FAMILY`, by name. Nothing else
lists families. No JAX.
"""

import importlib

from data.members import FolderMembers
from models.config.base import Config
from pretrain.families.family_record import Family


def load_family(name: str) -> Family | None:
    """Return the record in a file of this folder; None if it has none."""
    family = getattr(importlib.import_module(f"{__name__}.{name}"), "FAMILY", None)
    if family is not None and family.name != name:
        raise ValueError(
            f"pretrain/families/{name}.py: FAMILY.name is {family.name!r}, not {name!r}"
        )
    return family


FAMILIES = FolderMembers(__path__, load_family, lambda family: family.name)


def find_family(config: Config) -> Family:
    """Return the record of the family that a model's configuration belongs to.

    Raises:
      ValueError: it belongs to no family, as the configuration of a fine-tuned model.
    """
    family = FAMILIES.get(type(config).__module__.rpartition(".")[2])
    if family is not None and family.config is type(config):
        return family
    known = ", ".join(family.config.__name__ for family in FAMILIES.values())
    raise ValueError(
        f"no family has a {type(config).__name__}; the records in pretrain/families have {known}"
    )


def find_by_model_type(model_type: str) -> Family:
    """Return the family of a tokenizer: that as which a folder of this `model_type` is imported.

    A family that transformers does not have is found by its own name.

    Raises:
      ValueError: there is none.
    """
    found = {
        family.tokenizer_name: family
        for family in FAMILIES.values()
        if family.hugging_face is None or family.is_imported
    }
    if model_type not in found:
        raise ValueError(
            f"no family has the model_type {model_type!r}; there are {', '.join(found)}"
        )
    return found[model_type]
