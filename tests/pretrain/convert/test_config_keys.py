"""The keys of a config.json mean what they mean in `transformers`."""

import contextlib
import dataclasses
import types

import pytest

from data.images.encoding import ImageEncoding
from models.config.base import ImageConfig
from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.gpt import GptConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.convert.fine_tuned import from_hf_config
from pretrain.convert.head_maps import HEAD_CONVERSIONS
from pretrain.convert.pretrained import CONVERTERS
from pretrain.convert.read_write import find_converter
from pretrain.convert.size_checks import check_model_sizes
from pretrain.families.key_rules import Same, name_aliases, name_keys, select
from pretrain.families.labels import read_labels
from pretrain.publish.lost_rates import list_lost_rates
from tests.pretrain.finetune.encoders import make_decoders, make_encoders

torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
pytestmark = pytest.mark.more
transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")

UNKNOWN = {  # what their configuration needs, of model types that transformers does not have
    **{name: {} for name in ("gpt_bert", "linformer", "lstm_lm", "neobert")},
    **{name: {} for name in ("music_transformer", "sparse_transformer")},
    "transfo-xl": {"d_model": 1024, "n_head": 16, "n_layer": 18, "vocab_size": 9},
}
OLDER = {"eurobert": {"clf_pooling": "classifier_pooling"}}  # of the code released on the Hub
ALIASES = [
    (kind, alias)
    for kind, converter in CONVERTERS.items()
    for alias in name_aliases(converter.family.require_hugging_face().keys)
]
REQUIRED = {  # what our model needs and is not their default
    "deberta-v2": {
        **dict(relative_attention=True, share_att_key=True, position_biased_input=False),
        **dict(pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", position_buckets=256),
    },
    "esm": {"position_embedding_type": "rotary", "vocab_size": 33, "mask_token_id": 32},
    "marian": {"activation_function": "relu", "scale_embedding": True, "decoder_start_token_id": 0},
    "reformer": {"is_decoder": True},
    "t5": {"decoder_start_token_id": 0},
    "xlnet": {"d_head": None},
}


def describe_defaults(kind):
    """Return the content of a config.json with the defaults of transformers."""
    if kind in UNKNOWN:
        return {"model_type": kind} | UNKNOWN[kind]
    config = transformers.AutoConfig.for_model(kind).to_dict()
    return config | REQUIRED.get(kind, {})


@pytest.mark.parametrize("kind", CONVERTERS)
def test_every_alias_of_transformers_is_known(kind):
    rules = CONVERTERS[kind].family.require_hugging_face().keys
    keys = name_keys(rules).values()
    if kind not in UNKNOWN:
        theirs = type(transformers.AutoConfig.for_model(kind)).attribute_map | OLDER.get(kind, {})
        assert {alias: key for alias, key in theirs.items() if key in keys} == name_aliases(rules)


@pytest.mark.parametrize(("kind", "alias"), ALIASES)
def test_an_alias_is_read_as_its_key(kind, alias):
    converter = CONVERTERS[kind]
    rules = converter.family.require_hugging_face().keys
    key = name_aliases(rules)[alias]
    config = describe_defaults(kind)
    value = "mean" if kind == "eurobert" else 2 * config[key]
    twins = {twin: value for twin, original in select(rules, Same) if original == key}
    expected = converter.from_hf_config(config | twins | {key: value})
    if kind not in UNKNOWN and alias not in OLDER.get(kind, {}):
        size = {"d_head": expected.width // expected.num_heads} if kind == "xlnet" else {}
        theirs = transformers.AutoConfig.for_model(kind, **size, **{alias: value})
        assert getattr(theirs, key) == value
    renamed = {name: value for name, value in config.items() if name != key}
    assert converter.from_hf_config(renamed | twins | {alias: value}) == expected
    assert converter.from_hf_config(config | twins | {alias: value, key: value}) == expected
    with pytest.raises(
        ValueError, match=f"{alias} is {value!r} and {key} {config[key]!r}, two names"
    ):
        converter.from_hf_config(config | {alias: value})


@pytest.mark.parametrize("gated", [False, True])
def test_the_keys_that_precede_the_activation_of_t5_agree_with_it(gated):
    """transformers takes `dense_act_fn` and `is_gated_act` of a config.json, whatever the rest."""
    config = describe_defaults("t5") | {"feed_forward_proj": "gated-gelu" if gated else "relu"}
    config |= {"dense_act_fn": "gelu_new" if gated else "relu", "is_gated_act": gated}
    converter = CONVERTERS["t5"]
    assert converter.from_hf_config(config).gated is gated
    others = {"dense_act_fn": "silu", "is_gated_act": not gated}
    for key, value in others.items():
        assert getattr(transformers.T5Config(**config | {key: value}), key) == value
        with pytest.raises(ValueError, match=f"{key} is {value!r}, and feed_forward_proj is"):
            converter.from_hf_config(config | {key: value})
    with pytest.raises(ValueError, match="is_gated_act is 'gelu_fast', and feed_forward_proj is"):
        converter.from_hf_config(config | {"is_gated_act": "gelu_fast"})


@pytest.mark.parametrize("eos", [None, 1])
def test_a_gpt_names_the_end_of_text_of_its_vocabulary(eos):
    """`generate` ends there. A released vocabulary has none, and transformers has no default."""
    config = GptConfig(vocab=72, length=24, width=16, depth=2, num_heads=2, mlp=64)
    described = find_converter(config).to_hf_config(
        config, types.SimpleNamespace(eos=eos, pad=None)
    )
    assert described.get("eos_token_id") == described.get("pad_token_id") == eos
    assert transformers.OpenAIGPTConfig(**described).eos_token_id == eos


HEADS = [
    (kind, head)
    for kind in ("albert", "bert", "distilbert", "electra", "roberta", "xlnet")
    for head in (ClassifierConfig, SpanReaderConfig, ChoiceConfig)
]


@pytest.mark.parametrize(("kind", "head"), HEADS)
def test_an_absent_dropout_of_a_head_is_the_default_of_transformers(kind, head):
    """It is the encoder's for some of their keys, and a number of its own for others."""
    hf_map = CONVERTERS[kind].family.require_hugging_face()
    name = hf_map.fine_tuned_names.name_class(HEAD_CONVERSIONS[head].suffix)
    theirs = transformers.AutoConfig.for_model(kind)
    rate = "dropout" if kind in ("distilbert", "xlnet") else "hidden_dropout_prob"
    found = from_hf_config({"model_type": kind, "architectures": [name], rate: 0.35}).dropout
    classifier = getattr(theirs, "classifier_dropout", None)  # None: the encoder's
    expected = {
        "albert": getattr(theirs, "classifier_dropout_prob", None),
        "distilbert": getattr(theirs, "seq_classif_dropout", None),
        "xlnet": getattr(theirs, "summary_last_dropout", None),
    }.get(kind, 0.35 if classifier is None else classifier)
    if (kind, head) == ("electra", ChoiceConfig):
        expected = theirs.summary_last_dropout
    if head is SpanReaderConfig:
        expected = getattr(theirs, "qa_dropout", 0.0)
    assert found == expected


@pytest.mark.parametrize("count", [1, 2, 5])
def test_labels_without_names_are_as_many_as_num_labels(count):
    theirs = transformers.BertConfig.from_dict({"num_labels": count}).id2label
    assert read_labels({"num_labels": count}) == tuple(theirs.values())
    assert read_labels({"num_labels": count, "id2label": theirs}) == tuple(theirs.values())


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (3, "num_labels is 3, and id2label names 2"),
        (0, "num_labels is 0; expected 1 to"),
        (1 << 40, "num_labels is 1099511627776; expected 1 to"),
        ("2", "num_labels is '2'; expected 1 to"),
    ],
)
def test_a_number_of_labels_that_does_not_fit_is_refused(count, message):
    with pytest.raises(ValueError, match=message):
        read_labels({"num_labels": count, "id2label": {"0": "no", "1": "yes"}})


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        (
            "bert",
            {"num_attention_heads": 5},
            "hidden_size is 768, .* 5 heads of num_attention_heads",
        ),
        ("gpt2", {"n_head": 5}, "n_embd is 768, .* 5 heads of n_head"),
        ("t5", {"num_heads": 5}, None),  # whose heads have a width of their own
    ],
)
def test_a_width_that_does_not_divide_into_heads_is_named(kind, keys, message):
    hf_map = CONVERTERS[kind].family.require_hugging_face()
    config = CONVERTERS[kind].from_hf_config(describe_defaults(kind) | keys)
    names = name_keys(hf_map.keys)
    shapes = {str(number): (60_000,) for number in range(100)}
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
        check_model_sizes(config, names, shapes)


@pytest.mark.parametrize(
    ("model", "lost"),
    [
        (lambda each: each["bert"], {}),
        (lambda each: ClassifierConfig(encoder=each["bert"], labels=("a", "b"), dropout=0.3), {}),
        (lambda each: dataclasses.replace(each["xlnet"], attention_dropout=0.0), {"attention_dropout": (0.0, 0.1)}),
        (lambda each: SpanReaderConfig(encoder=each["bert"], dropout=0.3), {"dropout": (0.3, 0.0)}),
        (lambda each: SpanReaderConfig(encoder=each["distilbert"], dropout=0.3), {}),
        (lambda each: ClassifierConfig(encoder=each["gpt2"], labels=("a", "b"), dropout=0.3), {"dropout": (0.3, 0.1)}),
    ],
    ids=["bert", "classifier", "xlnet", "spans", "distilbert", "gpt2"],
)  # fmt: skip
def test_a_rate_without_a_key_is_reported(model, lost):
    config = model(make_encoders() | make_decoders())
    vocabulary = types.SimpleNamespace(pad=1, eos=2, bos=0)
    assert [line.partition(",")[0] for line in list_lost_rates(config, vocabulary)] == [
        f"model.{name}={before:g} is not in config.json" for name, (before, _) in lost.items()
    ]
    for line, (_, after) in zip(list_lost_rates(config, vocabulary), lost.values()):
        assert line.endswith(f"training that starts from the export has {after:g}")


@pytest.mark.parametrize("kind", CONVERTERS)
def test_an_import_loses_no_rate_in_an_export(kind):
    config = CONVERTERS[kind].from_hf_config(describe_defaults(kind))
    if isinstance(config, ImageConfig):
        assert list_lost_rates(config, ImageEncoding(("a", "b"))) == []
        return
    roles = dict.fromkeys(("bos", "cls", "sep", "eos", "pad", "mask"), 0)
    roles |= {"eos": getattr(config, "start", 2), "pad": getattr(config, "first_position", 1) - 1}
    roles |= {"pad": 0} if kind in ("t5", "bart", "marian") else {}
    assert list_lost_rates(config, types.SimpleNamespace(**roles)) == []


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert", "electra", "distilbert", "xlnet"])
@pytest.mark.parametrize("head", [TaggerConfig, ChoiceConfig])
def test_a_rate_that_transformers_does_not_read_is_reported(kind, head):
    """The oracle is the class: which of its modules drop with the rate of the key."""
    encoder = make_encoders()[kind]
    labels = {"labels": ("O", "B-A", "I-A")} if head is TaggerConfig else {}
    config = head(encoder=encoder, dropout=0.3, **labels)
    vocabulary = types.SimpleNamespace(**dict.fromkeys(("bos", "cls", "sep", "eos", "pad"), 0))
    vocabulary.pad = 1 if kind == "roberta" else 0
    described = find_converter(config).to_hf_config(config, vocabulary)
    kind_of_theirs = getattr(transformers, described["architectures"][0])
    theirs = kind_of_theirs(kind_of_theirs.config_class(**described))
    rates = {module.p for module in theirs.modules() if isinstance(module, torch.nn.Dropout)}
    expected = (
        []
        if 0.3 in rates
        else [f"model.dropout=0.3 is not read by transformers: a {kind_of_theirs.__name__} "]
    )
    found = list_lost_rates(config, vocabulary)
    assert [line.partition("has")[0] for line in found] == expected
