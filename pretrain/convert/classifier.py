"""A fine-tuned encoder under both its names: models/heads/classifier.py and `BertForSequenceClassification`, and so on for each head of HEADS.

The encoder's names are those of its own family's map; the head's are in pretrain/convert/heads.py. Only classifiers are imported.
"""

from typing import Any

from models.config.heads import ClassifierConfig
from pretrain.convert import family_in, name_map
from pretrain.convert.heads import HEADS
from pretrain.convert.pretrained import CONVERTERS, Converter, modern
from pretrain.families import FAMILIES

parts = ()  # what is fine-tuned has no second model beside it


def to_hf(config, params):
    """Return {name: float32 array}: what `model.safetensors` holds."""
    new = {name: part for name, part in params.items() if name != "encoder"}
    rules, depths, hf_map = map_side_by_side(config)
    tensors = name_map.export(params["encoder"] | new, rules, depths)
    if HEADS[type(config)].reads_rows:
        return tensors
    pooler = hf_map.fine_tuned.pooler
    return {name: array for name, array in tensors.items() if name.rpartition(".")[0] != pooler}


def from_hf(config, tensors, init_params):
    """Return (parameters, ImportReport) from {name: array} of an encoder with its head, which must be there.

    Raises ValueError that names what is missing, has no place, or has the wrong shape or type.
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


def map_side_by_side(config):
    """Return (rules, depths of the stacks, the family's map), of a model whose encoder and head lie side by side."""
    hf_map, head = family_in(config).hugging_face, HEADS[type(config)]
    moved = hf_map.fine_tuned.moved if head.is_classifier else {}
    own = [
        (ours, move(theirs, moved), layout)
        for ours, theirs, layout in hf_map.rules_of(config.encoder)
        if all(name.startswith(hf_map.prefix) for name in names_in(theirs))
    ]
    return (*own, *head.rules(hf_map.fine_tuned)), hf_map.depths_of(config.encoder), hf_map


def names_in(theirs):
    """Return the names of theirs in a rule, one or several."""
    return (theirs,) if isinstance(theirs, str) else theirs


def move(theirs, others):
    """Return the name or names of theirs in a pretrained model as they are in a fine-tuned one."""
    if not isinstance(theirs, str):
        return tuple(move(name, others) for name in theirs)
    stem, _, leaf = theirs.rpartition(".")
    return f"{others.get(stem, stem)}.{leaf}"


# Their classes that are imported, with their model_type.
KINDS = {
    hf_map.fine_tuned.classes + HEADS[ClassifierConfig].suffix: hf_map.model_type
    for hf_map in (family.hugging_face for family in FAMILIES.values())
    if hf_map.head_map is not None
}


def hf_config(config, vocabulary):
    """Return the dict of config.json."""
    hf_map, head = family_in(config).hugging_face, HEADS[type(config)]
    converter = Converter(family_in(config))
    described = {
        key: value
        for key, value in converter.hf_config(config.encoder, vocabulary).items()
        if key not in hf_map.second_models
    }
    name = hf_map.fine_tuned.classes + head.suffix
    return described | {"architectures": [name]} | head.settings(config, hf_map.fine_tuned)


def our_config(hf_config):
    """Return the ClassifierConfig of a config.json. Raises ValueError that names a setting that has no place here."""
    converter, problem = CONVERTERS[hf_config["model_type"]], hf_config.get("problem_type")
    hf_map = converter.family.hugging_face
    if problem not in (None, "single_label_classification", "regression"):
        raise ValueError(f"problem_type is {problem!r}; a row has one class here, or one score")
    # What is fine-tuned has no second model beside it: what is said of the first stands for both.
    encoder: Any = converter.our_config(hf_config | dict.fromkeys(hf_map.second_models, hf_config))
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
