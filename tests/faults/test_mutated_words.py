"""Row 10: every misspelt argument and every changed configuration is reported."""

import dataclasses
import random
import time

import pytest

from pretrain.config import load
from pretrain.settings.overrides import ConfigError

LETTERS = "abcdefghijklmnopqrstuvwxyz_"
CHANGES = (
    "model.depth=3",
    "model.dropout=0.2",
    "model.mlp=128",
    "data.batch_size=16",
    "data.objective.max_predictions=5",
    "optimizer.learning_rate=0.02",
    "optimizer=Adafactor",
    "train.seed=7",
    "train.label_smoothing=0.1",
    "train.compute_dtype=bfloat16",
)


def list_value_paths(node, path=""):
    """Return the paths of all values of a configuration."""
    for field in dataclasses.fields(node):
        value, key = getattr(node, field.name), f"{path}.{field.name}".lstrip(".")
        yield from list_value_paths(value, key) if dataclasses.is_dataclass(value) else [key]


def misspell_name(name, rng):
    """Omit, double, swap or replace one letter, as typing errors do."""
    at = rng.randrange(len(name))
    how = rng.randrange(4)
    if how == 0 and len(name) > 3:
        return name[:at] + name[at + 1 :]
    if how == 1 and at + 1 < len(name):
        return name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    return name[:at] + (name[at] * 2 if how == 2 else rng.choice(LETTERS)) + name[at + 1 :]


def is_as_near(word, name, siblings):
    """Return whether another name is one letter from the word too, as `beta2` from `betax` or `beta`."""
    others = [other for other in siblings if other != name]
    is_replaced = any(
        len(other) == len(word) and sum(map(str.__ne__, other, word)) == 1 for other in others
    )
    is_omitted = any(
        word == other[:at] + other[at + 1 :] for other in others for at in range(len(other))
    )
    return is_replaced or is_omitted


def test_every_misspelt_word_names_the_nearest(configured, record_property):
    path, run, _ = configured("bert")
    keys, rng, slowest, tried = list(list_value_paths(run)), random.Random(10), 0.0, 0
    while tried < 50:
        *parents, name = rng.choice(keys).split(".")
        word = misspell_name(name, rng)
        siblings = [key.split(".")[-1] for key in keys if key.split(".")[:-1] == parents]
        if word in siblings or is_as_near(word, name, siblings):
            continue
        began = time.process_time()
        with pytest.raises(ConfigError) as caught:
            load(path, [".".join([*parents, word]) + "=1"])
        slowest = max(slowest, time.process_time() - began)
        assert repr(word) in str(caught.value) and f"did you mean {name!r}?" in str(caught.value)
        tried += 1
    assert slowest < 1
    record_property("words", tried)
    record_property("accepted in silence", 0)


@pytest.mark.held_by(2)
@pytest.mark.parametrize("word", CHANGES)
def test_a_changed_configuration_is_described_and_refused(
    finished, configured, refused, record_property, word
):
    path, run, _ = configured("bert")
    before = {name: name.stat().st_mtime_ns for name in finished[1].rglob("*")}
    message = refused("train", path, "--workdir", finished[1], word)
    assert "holds a run of another configuration: " in message and message.endswith(
        "Name a new --workdir, or add --allow-changes to `train`"
    )
    key, value = word.split("=")
    assert f"{key}: " in message and " -> " in message
    assert {name: name.stat().st_mtime_ns for name in finished[1].rglob("*")} == before
    record_property("refused", 1)
