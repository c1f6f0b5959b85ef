"""Conversion of fine-tuned encoders to and from classes such as `BertForSequenceClassification`.

The encoder's names come from its family's map; the head's are in head_maps.py.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from data.vocabulary.base import Vocabulary
from models.config.heads import HeadedConfig
from pretrain.convert import find_model_family, name_map, renamed_tensors
from pretrain.convert.head_maps import HEAD_CONVERSIONS, HeadConversion, list_unread_modules
from pretrain.convert.pretrained import CONVERTERS, Converter, make_renamer
from pretrain.families import FAMILIES
from pretrain.families.family_record import JAX_FOLDER, HuggingFaceMap

# The subfolders of an export: a fine-tuned model has no second model.
subfolders: tuple[str, ...] = ()


def to_hf(config: HeadedConfig, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return {name: float32 array}, the content of `model.safetensors`."""
    head = {name: subtree for name, subtree in params.items() if name != "encoder"}
    rules, depths, hf_map = make_headed_map(config)
    tensors = name_map.export_tensors(params["encoder"] | head, rules, depths)
    unread = list_unread_modules(config)
    return {name: array for name, array in tensors.items() if not name.startswith(unread)}


def from_hf(
    config: HeadedConfig, tensors: Mapping[str, np.ndarray], init_params: dict[str, Any]
) -> tuple[dict[str, Any], name_map.ImportReport]:
    """Return (parameters, report) from {name: array} of an encoder and its head, which is required.

    A pooler that the head does not read may be missing.

    Raises ValueError, which names a tensor that is missing, has no place in the model, or has the
    wrong shape or dtype.
    """
    rules, depths, hf_map = make_headed_map(config)
    tensors = renamed_tensors.rename_tensors(tensors, make_renamer(hf_map, tensors))
    head = {name: subtree for name, subtree in init_params.items() if name != "encoder"}
    own = init_params["encoder"] | head
    flat, report = name_map.fill_params(
        tensors,
        rules,
        depths,
        own,
        head_prefixes=list_unread_modules(config),
        body_prefixes=(hf_map.prefix, *hf_map.fine_tuned_names.shared),
        ignored_patterns=hf_map.buffers,
    )
    encoder = {name: flat[name] for name in init_params["encoder"]}
    return {"encoder": encoder} | {name: flat[name] for name in head}, report


def check_map(config: HeadedConfig, paths: Iterable[str]) -> None:
    """Raise ValueError unless the maps of an encoder and its head name all parameters, and no more.

    paths: of the parameters, whose values are not needed.
    """
    rules, depths, _ = make_headed_map(config)
    own = name_map.unstack_paths((path.removeprefix("encoder/") for path in paths), depths)
    name_map.check_paths(own, name_map.expand_rules(rules, depths))


def make_headed_map(
    config: HeadedConfig,
) -> tuple[tuple[Any, ...], dict[str, int], HuggingFaceMap]:
    """Return (rules, depths of the stacks, the family's map) of an encoder with a head."""
    hf_map = find_model_family(config).require_hugging_face()
    head = HEAD_CONVERSIONS[type(config)]
    moved = hf_map.fine_tuned_names.renamed_in_classifier if head.is_classifier else {}
    prefixes = (hf_map.prefix, *hf_map.fine_tuned_names.shared)
    own = [
        (ours, rename_moved(theirs, moved), layout)
        for ours, theirs, layout in hf_map.make_rules(config.encoder)
        if all(name.startswith(prefixes) for name in list_their_names(theirs))
    ]
    return (*own, *head.rules(hf_map.fine_tuned_names)), hf_map.find_depths(config.encoder), hf_map


def list_their_names(theirs: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of their tensors in a rule, one or several."""
    return (theirs,) if isinstance(theirs, str) else theirs


def rename_moved(theirs: str | tuple[str, ...], moved: Mapping[str, str]) -> Any:
    """Return the names in a fine-tuned model of tensors with these names in a pretrained one.

    moved: {module of a pretrained model: the same in a fine-tuned one}.
    """
    if not isinstance(theirs, str):
        return tuple(rename_moved(name, moved) for name in theirs)
    stem, _, leaf = theirs.rpartition(".")
    return f"{moved.get(stem, stem)}.{leaf}"


# {their class: (its model_type, the conversion of its head)}
HEADED_CLASSES: dict[str, tuple[str, HeadConversion]] = {
    hf_map.fine_tuned_names.name_class(head.suffix): (hf_map.model_type, head)
    for hf_map in (family.hugging_face for family in FAMILIES.values())
    if hf_map and hf_map.head_map
    for head in HEAD_CONVERSIONS.values()
    if head.suffix not in hf_map.head_map.lacking
}


def find_head(hf_config: Mapping[str, Any]) -> HeadConversion | None:
    """Return the conversion of the head that a config.json names; None if it names none."""
    for name in list_architectures(hf_config):
        model_type, head = HEADED_CLASSES.get(name, (None, None))
        if head is not None and model_type == hf_config.get("model_type"):
            return head
    return None


def list_architectures(hf_config: Mapping[str, Any]) -> list[str]:
    """Return the names of the classes of transformers in a config.json."""
    names = hf_config.get("architectures") or []
    return [str(name) for name in names] if isinstance(names, list) else [str(names)]


def to_hf_config(config: HeadedConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of config.json.

    Raises:
      ValueError: transformers has no such class.
    """
    hf_map = find_model_family(config).require_hugging_face()
    head = HEAD_CONVERSIONS[type(config)]
    head_map = hf_map.fine_tuned_names
    name = head_map.name_class(head.suffix)
    if head.suffix in head_map.lacking:
        raise ValueError(
            f"transformers has no {name}: this model cannot be exported to a Hugging Face folder. "
            f"{JAX_FOLDER}"
        )
    converter = Converter(find_model_family(config))
    described = {
        key: value
        for key, value in converter.to_hf_config(config.encoder, vocabulary).items()
        if key not in hf_map.second_models
    }
    return described | {"architectures": [name]} | head.settings(config, head_map)


def from_hf_config(hf_config: Mapping[str, Any]) -> HeadedConfig:
    """Return the configuration in a config.json. Raises ValueError for an unsupported setting."""
    converter, head = CONVERTERS[hf_config["model_type"]], find_head(hf_config)
    if head is None:
        raise ValueError(f"architectures {list_architectures(hf_config)} name no model with a head")
    hf_map = converter.family.require_hugging_face()
    # A fine-tuned model has no second model: the settings of the first stand for both.
    second = dict.fromkeys(hf_map.second_models, hf_config)
    encoder: Any = converter.from_hf_config({**hf_config, **second})
    encoder = encoder.as_encoder()
    return head.read(hf_config, encoder, hf_map.fine_tuned_names)
