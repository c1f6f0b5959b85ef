"""Conversion of fine-tuned encoders: ours and `BertForSequenceClassification` and its like.

The encoder's names are those of its family's map; the head's are in pretrain/convert/heads.py. All
kinds of heads are exported, and only classifiers are imported.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from data.vocabulary.base import Vocabulary
from models.config.heads import ClassifierConfig, HeadedConfig
from pretrain.convert import family_in, name_map
from pretrain.convert.heads import HEADS
from pretrain.convert.pretrained import CONVERTERS, Converter, modern
from pretrain.families import FAMILIES
from pretrain.families.record import HuggingFaceMap

# The subfolders of an export: a fine-tuned model has no second model.
parts: tuple[str, ...] = ()


def to_hf(config: HeadedConfig, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return {name: float32 array}, the content of `model.safetensors`."""
    head = {name: subtree for name, subtree in params.items() if name != "encoder"}
    rules, depths, hf_map = map_side_by_side(config)
    tensors = name_map.export(params["encoder"] | head, rules, depths)
    if HEADS[type(config)].reads_rows:
        return tensors
    pooler = hf_map.fine_tuned.pooler
    return {name: array for name, array in tensors.items() if name.rpartition(".")[0] != pooler}


def from_hf(
    config: ClassifierConfig, tensors: Mapping[str, np.ndarray], init_params: dict[str, Any]
) -> tuple[dict[str, Any], name_map.ImportReport]:
    """Return (parameters, report) from {name: array} of an encoder and its head, which is required.

    Raises ValueError, which names a tensor that is missing, has no place in the model, or has the
    wrong shape or dtype.
    """
    rules, depths, hf_map = map_side_by_side(config)
    tensors = name_map.rename(tensors, modern(hf_map, tensors))
    own = init_params["encoder"] | {"classifier": init_params["classifier"]}
    flat, report = name_map.fill(
        tensors, rules, depths, own, heads=(), body=(hf_map.prefix,), known=hf_map.buffers
    )
    return {
        "encoder": {name: flat[name] for name in init_params["encoder"]},
        "classifier": flat["classifier"],
    }, report


def map_side_by_side(
    config: HeadedConfig,
) -> tuple[tuple[Any, ...], dict[str, int], HuggingFaceMap]:
    """Return (rules, depths of the stacks, the family's map) of an encoder with a head."""
    hf_map, head = family_in(config).hugging_face, HEADS[type(config)]
    moved = hf_map.fine_tuned.moved if head.is_classifier else {}
    own = [
        (ours, move(theirs, moved), layout)
        for ours, theirs, layout in hf_map.rules_of(config.encoder)
        if all(name.startswith(hf_map.prefix) for name in names_in(theirs))
    ]
    return (*own, *head.rules(hf_map.fine_tuned)), hf_map.depths_of(config.encoder), hf_map


def names_in(theirs: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of their tensors in a rule, one or several."""
    return (theirs,) if isinstance(theirs, str) else theirs


def move(theirs: str | tuple[str, ...], others: Mapping[str, str]) -> Any:
    """Return the names in a fine-tuned model of tensors with these names in a pretrained one.

    others: {module of a pretrained model: the same in a fine-tuned one}.
    """
    if not isinstance(theirs, str):
        return tuple(move(name, others) for name in theirs)
    stem, _, leaf = theirs.rpartition(".")
    return f"{others.get(stem, stem)}.{leaf}"


# {their class that is imported: its model_type}
KINDS = {
    hf_map.fine_tuned.classes + HEADS[ClassifierConfig].suffix: hf_map.model_type
    for hf_map in (family.hugging_face for family in FAMILIES.values())
    if hf_map.head_map is not None
}


def hf_config(config: HeadedConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of config.json."""
    hf_map, head = family_in(config).hugging_face, HEADS[type(config)]
    converter = Converter(family_in(config))
    described = {
        key: value
        for key, value in converter.hf_config(config.encoder, vocabulary).items()
        if key not in hf_map.second_models
    }
    name = hf_map.fine_tuned.classes + head.suffix
    return described | {"architectures": [name]} | head.settings(config, hf_map.fine_tuned)


def our_config(hf_config: Mapping[str, Any]) -> ClassifierConfig:
    """Return the configuration in a config.json. Raises ValueError for an unsupported setting."""
    converter, problem = CONVERTERS[hf_config["model_type"]], hf_config.get("problem_type")
    hf_map = converter.family.hugging_face
    if problem not in (None, "single_label_classification", "regression"):
        raise ValueError(f"problem_type is {problem!r}; a row has one class here, or one score")
    # A fine-tuned model has no second model: the settings of the first stand for both.
    second = dict.fromkeys(hf_map.second_models, hf_config)
    encoder: Any = converter.our_config({**hf_config, **second})
    named: dict[Any, str] = hf_config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if sorted(map(str, named)) != sorted(map(str, range(len(named)))):
        raise ValueError(
            f"id2label has the numbers {', '.join(map(str, named))}; expected 0 to {len(named) - 1}"
        )
    labels = tuple(str(named.get(str(number), named.get(number))) for number in range(len(named)))
    dropout = hf_config.get(hf_map.fine_tuned.dropout)
    return ClassifierConfig(
        encoder=encoder,
        labels=() if problem == "regression" or len(labels) == 1 else labels,
        dropout=encoder.dropout if dropout is None else float(dropout),
    )
