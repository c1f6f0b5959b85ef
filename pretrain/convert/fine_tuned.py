"""Conversion of fine-tuned encoders to and from classes such as `BertForSequenceClassification`.

The encoder's names come from its family's map; the head's are in head_maps.py.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from data.vocabulary.base import Vocabulary
from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from pretrain.convert import find_model_family, name_map
from pretrain.convert.head_maps import (
    EMBEDDER,
    HEAD_CONVERSIONS,
    HeadConversion,
    list_unread_modules,
)
from pretrain.convert.pretrained import CONVERTERS, Converter
from pretrain.families import FAMILIES
from pretrain.families.family_record import JAX_FOLDER, HuggingFaceMap
from pretrain.families.tensor_steps import run_steps

# The subfolders of an export: a fine-tuned model has no second model.
subfolders: tuple[str, ...] = ()
TEMPERATURE = "log_scale"  # the parameter of an embedder's temperature, which no folder has


def to_hf(config: HeadedConfig, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return {name: float32 array}, the content of `model.safetensors`."""
    head = take_head(params)
    rules, depths, hf_map = make_headed_map(config)
    tensors = name_map.export_tensors(params["encoder"] | head, rules, depths)
    unread = list_unread_modules(config)
    own = {name: array for name, array in tensors.items() if not name.startswith(unread)}
    return dict(run_steps(hf_map.fine_tuned_names.after_export, config.encoder, own))


def from_hf(
    config: HeadedConfig, tensors: Mapping[str, np.ndarray], init_params: dict[str, Any]
) -> tuple[dict[str, Any], name_map.ImportReport]:
    """Return (parameters, report) from {name: array} of an encoder and its head, which is required.

    A pooler that the head does not read may be missing.

    Raises ValueError, which names a tensor that is missing, has no place in the model, or has the
    wrong shape or dtype.
    """
    rules, depths, hf_map = make_headed_map(config)
    head = take_head(init_params)
    own = init_params["encoder"] | head
    flat, report = name_map.fill_params(
        run_steps(hf_map.before_import, config.encoder, tensors),
        rules,
        depths,
        own,
        head_prefixes=list_unread_modules(config),
        body_prefixes=(*hf_map.body, *hf_map.fine_tuned_names.shared),
        ignored_patterns=hf_map.buffers,
    )
    encoder = {name: flat[name] for name in init_params["encoder"]}
    return init_params | {"encoder": encoder} | {name: flat[name] for name in head}, report


def take_head(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a head that transformers has; it has no temperature."""
    return {name: part for name, part in params.items() if name not in ("encoder", TEMPERATURE)}


def check_map(config: HeadedConfig, paths: Iterable[str]) -> None:
    """Raise ValueError unless the maps of an encoder and its head name all parameters, and no more.

    paths: of the parameters, whose values are not needed.
    """
    rules, depths, _ = make_headed_map(config)
    names = (path.removeprefix("encoder/") for path in paths if path != TEMPERATURE)
    own = name_map.unstack_paths(names, depths)
    name_map.check_paths(own, name_map.expand_rules(rules, depths))


def make_headed_map(config: HeadedConfig) -> tuple[tuple[Any, ...], dict[str, int], HuggingFaceMap]:
    """Return (rules, depths of the stacks, the family's map) of an encoder with a head."""
    hf_map = find_model_family(config).require_hugging_face()
    head = HEAD_CONVERSIONS[type(config)]
    head_rules = hf_map.fine_tuned_names.find_rules(head.suffix)
    overridden = {ours for ours, _, _ in head_rules}
    shared = () if isinstance(config, EmbedderConfig) else hf_map.fine_tuned_names.shared
    prefixes = (*hf_map.body, *shared)
    own = [
        (ours, theirs, layout)
        for ours, theirs, layout in hf_map.make_rules(config.encoder)
        if ours not in overridden
        and all(name.startswith(prefixes) for name in list_their_names(theirs))
    ]
    return (*own, *head_rules), hf_map.find_depths(config.encoder), hf_map


def list_their_names(theirs: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of their tensors in a rule, one or several."""
    return (theirs,) if isinstance(theirs, str) else theirs


# {their class: (its model_type, the conversion of its head)}
HEADED_CLASSES: dict[str, tuple[str, HeadConversion]] = {
    hf_map.fine_tuned_names.name_class(head.suffix): (hf_map.model_type, head)
    for hf_map in (family.hugging_face for family in FAMILIES.values())
    if hf_map and hf_map.head_map
    for head in HEAD_CONVERSIONS.values()
    if head.suffix != "Model" and hf_map.head_map.has_class(head.suffix)
}


def find_head(hf_config: Mapping[str, Any]) -> HeadConversion | None:
    """Return the conversion of the head that a config.json names; None if it names none.

    The folder of an embedder has the entry EMBEDDER besides.
    """
    if EMBEDDER in hf_config:
        return HEAD_CONVERSIONS[EmbedderConfig]
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
    if not head_map.has_class(head.suffix):
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
    fixed = head_map.fixed.get(head.suffix, {})
    return described | {"architectures": [name], **fixed} | head.settings(config, head_map)


def from_hf_config(hf_config: Mapping[str, Any]) -> HeadedConfig:
    """Return the configuration in a config.json. Raises ValueError for an unsupported setting."""
    converter, head = CONVERTERS[hf_config["model_type"]], find_head(hf_config)
    if head is None:
        raise ValueError(f"architectures {list_architectures(hf_config)} name no model with a head")
    hf_map = converter.family.require_hugging_face()
    # A fine-tuned model has no second model: the settings of the first stand for both.
    second = dict.fromkeys(hf_map.second_models, hf_config)
    encoder: Any = converter.from_hf_config({**hf_config, **second})
    head_map = hf_map.fine_tuned_names
    for key, only in head_map.fixed.get(head.suffix, {}).items():
        if (value := hf_config.get(key, only)) != only:
            name = head_map.name_class(head.suffix)
            raise ValueError(f"{key} is {value!r}; {name} is read with {only!r} alone")
    return head.read(hf_config, encoder.as_encoder(), head_map)
