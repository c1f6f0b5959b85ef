"""A fine-tuned encoder under both its names: models/heads/classifier.py and `BertForSequenceClassification`, and so on for each head of HEADS.

The encoder's names are those of its own family's table; the head's are in pretrain/convert/heads.py. Only classifiers are imported.
"""

from typing import Any

from models.config.heads import ClassifierConfig
from pretrain.convert import albert, bert, distilbert, electra, name_map, name_of, roberta
from pretrain.convert.heads import DROPOUT, HEADS

# model_type -> how the names of their classes begin, the table of its encoder, and how the names of that encoder begin
FAMILIES = {
    "bert": ("Bert", bert, ("bert.",)),
    "albert": ("Albert", albert, ("albert.",)),
    "roberta": ("Roberta", roberta, ("roberta.",)),
    "electra": ("Electra", electra, ("electra.",)),
    "distilbert": ("DistilBert", distilbert, ("distilbert.",)),
}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    rules, depths, _ = parted(config)
    new = {name: part for name, part in params.items() if name != "encoder"}
    tensors = name_map.export(params["encoder"] | new, rules, depths)
    return {
        name: tensor
        for name, tensor in tensors.items()
        if name.rpartition(".")[0] not in HEADS[type(config)].left_out
    }


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of an encoder with its head, which must be there.

    Raises ValueError that names what is missing, has no place, or has the wrong shape or type.
    """
    rules, depths, body = parted(config)
    module = FAMILIES[name_of(config)][1]
    tensors = name_map.rename(tensors, bert.modern(name_of(config), tensors))
    own = init_params["encoder"] | {"classifier": init_params["classifier"]}
    flat, report = name_map.fill(
        tensors, rules, depths, own, heads=(), body=body, known=module.BUFFERS
    )
    return {
        "encoder": {name: flat[name] for name in init_params["encoder"]},
        "classifier": flat["classifier"],
    }, report


def parted(config):
    """(rules, depths of the stacks, how the names of the encoder begin), of a model whose encoder and head lie side by side."""
    family, head = name_of(config), HEADS[type(config)]
    _, module, body = FAMILIES[family]
    rules = module.rules(config.encoder) if module is electra else module.RULES
    own = [
        (ours, moved(theirs, head.moved), layout)
        for ours, theirs, layout in rules
        if theirs.startswith(body)
    ]
    return (*own, *head.rules[family]), DEPTHS[module](config.encoder), body


KINDS = {
    begins + HEADS[ClassifierConfig].suffix: family for family, (begins, *_) in FAMILIES.items()
}
DEPTHS = {
    bert: lambda config: {"bert/encoder": config.depth},
    albert: lambda config: {},
    roberta: lambda config: {"roberta/encoder": config.depth},
    electra: electra.depths,
    distilbert: lambda config: {"student/encoder": config.depth},
}


def moved(theirs, others):
    """A name of theirs in a pretrained model, as it is in a fine-tuned one."""
    stem, _, leaf = theirs.rpartition(".")
    return f"{others.get(stem, stem)}.{leaf}"


def hf_config(config, vocabulary):
    """The dict of config.json."""
    family, head = name_of(config), HEADS[type(config)]
    begins, module, _ = FAMILIES[family]
    described = {
        key: value
        for key, value in module.hf_config(config.encoder, vocabulary).items()
        if key not in getattr(module, "PARTS", ())
    }
    return described | {"architectures": [begins + head.suffix]} | head.settings(config, family)


def our_config(hf_config):
    """The ClassifierConfig of a config.json. Raises ValueError that names a setting that has no place here."""
    family = hf_config["model_type"]
    module, problem = FAMILIES[family][1], hf_config.get("problem_type")
    if problem not in (None, "single_label_classification", "regression"):
        raise ValueError(f"problem_type is {problem!r}; a row has one class here, or one score")
    # What is fine-tuned has no second model beside it: what is said of the first stands for both.
    encoder = module.our_config(hf_config | dict.fromkeys(getattr(module, "PARTS", ()), hf_config))
    named: dict[Any, str] = hf_config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if sorted(map(str, named)) != sorted(map(str, range(len(named)))):
        raise ValueError(
            f"id2label has the numbers {', '.join(map(str, named))}; expected 0 to {len(named) - 1}"
        )
    labels = tuple(str(named.get(str(number), named.get(number))) for number in range(len(named)))
    dropout = hf_config.get(DROPOUT.get(family, "classifier_dropout"))
    return ClassifierConfig(
        encoder=encoder,
        labels=() if problem == "regression" or len(labels) == 1 else labels,
        dropout=encoder.dropout if dropout is None else float(dropout),
    )
