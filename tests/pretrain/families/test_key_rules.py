"""A list of key rules reads what it writes, and a family can extend another family's list."""

import dataclasses

import pytest

from pretrain.convert.config_keys import read_keys, replace_aliases, write_keys
from pretrain.families.key_rules import Constant, Fixed, Key, Same


@dataclasses.dataclass(frozen=True)
class Sizes:
    width: int = 8
    mlp: int = 24
    dropout: float = 0.5
    epsilon: float = 1e-6


RULES = (
    Key("width", "hidden_size", 4, ("d_model",)),
    Key("mlp", "n_inner", lambda theirs: 4 * theirs.get("hidden_size", 4)),
    Key("dropout", "drop", 0.1),
    Fixed("act", "gelu", also=("gelu_python",)),
    Fixed("bidirectional", True, absent=False),
    Fixed("pre_norm", False, written=False),
    Same("decoder_size", "hidden_size"),
    Constant("epsilon", 1e-6),
)
WRITTEN = {
    "hidden_size": 8, "n_inner": 24, "drop": 0.5, "act": "gelu", "bidirectional": True,
    "decoder_size": 8,
}  # fmt: skip


def test_a_list_reads_what_it_writes():
    assert list(write_keys(Sizes(), RULES, "Model").items()) == list(WRITTEN.items())
    assert Sizes(**read_keys(WRITTEN, Sizes, RULES)) == Sizes()
    with pytest.raises(ValueError, match="epsilon=1e-05 cannot be exported: Model has 1e-06"):
        write_keys(Sizes(epsilon=1e-5), RULES, "Model")


def test_absent_keys_have_their_meaning():
    given = {"bidirectional": True, "drop": None}
    assert read_keys(given, Sizes, RULES) == dataclasses.asdict(Sizes(4, 16, 0.1))
    assert read_keys(given | {"hidden_size": 6, "decoder_size": 6}, Sizes, RULES)["mlp"] == 24
    assert replace_aliases({"d_model": 6}, RULES) == {"hidden_size": 6}
    with pytest.raises(ValueError, match="bidirectional is False; Sizes knows only True"):
        read_keys({}, Sizes, RULES)
    with pytest.raises(ValueError, match="decoder_size is 6 and hidden_size 4; Sizes has one"):
        read_keys(given | {"decoder_size": 6}, Sizes, RULES)


@pytest.mark.parametrize(
    ("key", "value", "is_read"),
    [
        ("act", "gelu_python", True),
        ("act", "relu", False),
        ("pre_norm", True, False),
        ("n_inner", 2.5, False),
        ("drop", 1, True),
        ("quantization_config", {}, False),
    ],
)
def test_a_value_is_read_or_its_key_is_named(key, value, is_read):
    if is_read:
        assert set(read_keys(WRITTEN | {key: value}, Sizes, RULES)) == set(vars(Sizes()))
        return
    with pytest.raises(ValueError, match=key):
        read_keys(WRITTEN | {key: value}, Sizes, RULES)


def test_a_later_rule_replaces_an_earlier_one_in_its_place():
    rules = (
        *RULES,
        Fixed("act", "relu"),
        Key("width", "hidden_size", 2),
        Constant("epsilon", 1e-5),
    )
    written = write_keys(Sizes(epsilon=1e-5), rules, "Model")
    assert list(written.items()) == list((WRITTEN | {"act": "relu"}).items())
    assert read_keys({"act": "relu", "bidirectional": True}, Sizes, rules)["width"] == 2
    with pytest.raises(ValueError, match="act is 'gelu'; Sizes knows only 'relu'"):
        read_keys(WRITTEN, Sizes, rules)
