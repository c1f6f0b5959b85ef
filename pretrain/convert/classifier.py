"""A fine-tuned encoder under both its names: models/classifier.py and `BertForSequenceClassification` and its like of transformers.

The encoder's names are those of its own family's table; only the head's are here. Export only: what is imported is a pretrained model.
"""

from pretrain.convert import albert, bert, distilbert, electra, roberta, table
from pretrain.convert.table import linear

POOLED = linear("classifier/out", "classifier")
# model_type -> their class, the table of its encoder, the rules of its head, and how the names of that encoder begin
FAMILIES = {
    "bert": ("BertForSequenceClassification", bert, POOLED, ("bert.",)),
    "albert": ("AlbertForSequenceClassification", albert, POOLED, ("albert.",)),
    # Their head has a hidden layer where ours is the encoder's pooler: the same numbers under another name.
    "roberta": ("RobertaForSequenceClassification", roberta, linear("classifier/out", "classifier.out_proj"), ("roberta.",)),
    "electra": (
        "ElectraForSequenceClassification",
        electra,
        (*linear("classifier/transform", "classifier.dense"), *linear("classifier/scores/out", "classifier.out_proj")),
        ("electra.",),
    ),
    "distilbert": (
        "DistilBertForSequenceClassification",
        distilbert,
        (*linear("classifier/transform", "pre_classifier"), *linear("classifier/scores/out", "classifier")),
        ("distilbert.",),
    ),
}
MOVED = {"roberta.pooler.dense": "classifier.dense"}
DROPOUT = {"distilbert": "seq_classif_dropout", "albert": "classifier_dropout_prob"}  # else classifier_dropout


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    from pretrain.convert import name_of

    _, module, head, body = FAMILIES[name_of(config)]
    rules = module.rules(config.encoder) if module is electra else module.RULES
    own = [(ours, moved(theirs), layout) for ours, theirs, layout in rules if theirs.startswith(body)]
    flat = params["encoder"] | {"classifier": params["classifier"]}
    return table.export(flat, (*own, *head), DEPTHS[module](config.encoder))


DEPTHS = {
    bert: lambda config: {"bert/encoder": config.depth},
    albert: lambda config: {},
    roberta: lambda config: {"roberta/encoder": config.depth},
    electra: electra.depths,
    distilbert: lambda config: {"student/encoder": config.depth},
}


def moved(theirs):
    """A name of theirs in a pretrained model, as it is in a fine-tuned one."""
    stem, _, leaf = theirs.rpartition(".")
    return f"{MOVED.get(stem, stem)}.{leaf}"


def hf_config(config, vocabulary):
    """The dict of config.json."""
    from pretrain.convert import name_of

    family = name_of(config)
    kind, module, *_ = FAMILIES[family]
    described = {key: value for key, value in module.hf_config(config.encoder, vocabulary).items() if key not in getattr(module, "PARTS", ())}
    names = dict(enumerate(config.labels or ("LABEL_0",)))
    return described | {
        "architectures": [kind],
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
        "problem_type": "single_label_classification" if config.labels else "regression",
        DROPOUT.get(family, "classifier_dropout"): config.dropout,
    }
