"""A fine-tuned encoder under both its names: models/classifier.py and `BertForSequenceClassification`, and so on for each head of HEADS.

The encoder's names are those of its own family's table; the head's are in pretrain/convert/heads.py. Export only: what is imported is a
pretrained model.
"""

from pretrain.convert import albert, bert, distilbert, electra, roberta, table
from pretrain.convert.heads import HEADS

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
    from pretrain.convert import name_of

    family, head = name_of(config), HEADS[type(config)]
    _, module, body = FAMILIES[family]
    rules = module.rules(config.encoder) if module is electra else module.RULES
    own = [(ours, moved(theirs, head.moved), layout) for ours, theirs, layout in rules if theirs.startswith(body)]
    new = {name: part for name, part in params.items() if name != "encoder"}
    tensors = table.export(params["encoder"] | new, (*own, *head.rules[family]), DEPTHS[module](config.encoder))
    return {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[0] not in head.left_out}


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
    from pretrain.convert import name_of

    family, head = name_of(config), HEADS[type(config)]
    begins, module, _ = FAMILIES[family]
    described = {key: value for key, value in module.hf_config(config.encoder, vocabulary).items() if key not in getattr(module, "PARTS", ())}
    return described | {"architectures": [begins + head.suffix]} | head.settings(config, family)
