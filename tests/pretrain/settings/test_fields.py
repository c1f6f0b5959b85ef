"""Metadata of the configuration dataclasses: settings, defaults, and the meaning in the comment of
each field.
"""

import dataclasses

import pytest

from pretrain.config import SECTION_CLASSES, Run, load
from pretrain.settings.fields import (
    format_tree,
    format_value,
    list_field_notes,
    list_nodes,
    list_sections,
    list_settings,
    read_meaning,
)


@dataclasses.dataclass(frozen=True)
class Base:
    depth: int = 2  # [layers] How many there are.


@dataclasses.dataclass(frozen=True)
class Derived(Base):
    """No comment belongs to this line."""

    # Above it,
    # on two lines.
    width: int = 4
    spread: tuple[int, ...] = ()  # [tokens] Behind it.

    # Not of the next field.

    bare: str = "# in a text"

    def __post_init__(self):
        pass  # of no field


def test_the_meaning_is_the_comment_beside_a_field():
    assert read_meaning(Derived, "width") == ("", "Above it, on two lines.")
    assert read_meaning(Derived, "spread") == ("tokens", "Behind it.")
    assert read_meaning(Derived, "depth") == ("layers", "How many there are.")
    assert read_meaning(Derived, "bare") == ("", "")


# Their classes are complete; model families' and objectives' follow.
COMPLETE = [
    kind
    for kind in SECTION_CLASSES.values()
    if kind.__module__.startswith(("pretrain.", "data.config"))
]


@pytest.mark.parametrize("kind", COMPLETE, ids=lambda kind: kind.__name__)
def test_every_field_has_a_meaning(kind):
    for note in list_field_notes(kind, ("",)):
        assert note.meaning.endswith("."), f"{kind.__name__}.{note.keys[0]} has no meaning"
        assert note.unit in (
            "",
            "steps",
            "rows",
            "words",
            "tokens",
            "layers",
            "devices",
            "seconds",
            "threads",
            "batches",
        )


def test_the_classes_that_are_complete_are_those_of_a_run():
    assert {"Run", "Data", "AdamW", "Adafactor", "Lamb", "Train", "Guard", "Mesh", "Limits"} <= {
        kind.__name__ for kind in COMPLETE
    }


def test_a_section_has_all_keys_wherever_it_is_allowed():
    sections = {kind.__name__: places for kind, places in list_sections(Run).items()}
    assert sections["BertConfig"] == ("model", "model.encoder")
    assert sections["MaskedLm"] == ("data.objective", "data.objective.parts.NAME.objective")
    assert sections["Run"] == ("",)
    own = {kind.__name__: places for kind, places in list_nodes(load("albert_tiny")).items()}
    assert (
        own["AlbertConfig"] == ("model",) and "AdamW" not in own and own["Lamb"] == ("optimizer",)
    )


def test_every_leaf_of_a_run_is_a_setting_and_a_line():
    run = load("bert_tiny", ["optimizer=lamb"])
    settings = {setting.key: setting for setting in list_settings(run)}
    assert settings["optimizer.learning_rate"].value == 0.00176
    assert not settings["optimizer.learning_rate"].is_changed
    assert settings["model.depth"].is_changed and settings["model.depth"].default == 12
    lines = format_tree(run)
    marked = [line for line in lines if "* default" in line]
    changed = [setting for setting in settings.values() if setting.is_changed]
    assert len(marked) == len(changed) + 1  # including the class of the optimizer
    assert any(line.split() == ["optimizer", "Lamb", "*", "default", "AdamW"] for line in lines)
    assert any(line.split() == ["depth", "2", "*", "default", "12"] for line in lines)
    assert len(lines) == len(settings) + sum(map(len, list_nodes(run).values())) - 1


@pytest.mark.parametrize("name", ["bert_tiny", "t5_mini", "transformer_base"])
def test_a_value_is_spelt_as_the_command_line_takes_it(name):
    run = load(name)
    arguments = [
        f"{setting.key}={format_value(setting.value)}"
        for setting in list_settings(run)
        if setting.value not in ("", ())
    ]
    assert load(name, arguments) == run
    assert load("bert_tiny", ["evaluate.metrics=accuracy,f1"]).evaluate.metrics == (
        "accuracy",
        "f1",
    )
    assert format_value(("accuracy", "f1")) == "accuracy,f1" and format_value(None) == "none"
