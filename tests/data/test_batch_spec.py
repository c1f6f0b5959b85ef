"""The treaty covers exactly the objectives there are, and tells a batch that breaks it."""

import numpy as np
import pytest

from data import batch_spec
from data.objectives import OBJECTIVES, MaskedLm, SpanCorruption


def test_every_objective_has_a_treaty_and_a_size_for_each_letter():
    assert batch_spec.BATCHES.keys() == OBJECTIVES.keys()
    for name, objective in OBJECTIVES.items():
        assert objective.name == name
        for _, letters in batch_spec.BATCHES[name].values():
            assert set(letters) <= {"B", *objective().dims()}


def test_shapes():
    assert batch_spec.shapes(MaskedLm(length=16, predictions=3, rows="documents"), 4) == {
        "tokens": (np.dtype("int32"), (4, 16)),
        "valid": (np.dtype("bool"), (4, 16)),
        "positions": (np.dtype("int32"), (4, 3)),
        "targets": (np.dtype("int32"), (4, 3)),
        "weights": (np.dtype("float32"), (4, 3)),
    }
    assert batch_spec.shapes(SpanCorruption(), 2)["targets"] == (np.dtype("int32"), (2, 114))


def test_check_names_what_is_wrong():
    objective = MaskedLm(length=16, predictions=3, rows="documents")
    good = {
        key: np.zeros(shape, dtype)
        for key, (dtype, shape) in batch_spec.shapes(objective, 4).items()
    }
    batch_spec.check(good, objective, 4)
    for changed, message in (
        (
            {**good, "labels": good["targets"]},
            r"missing \[\], not in data/batch_spec.py: \['labels'\]",
        ),
        ({key: good[key] for key in good if key != "weights"}, r"missing \['weights'\]"),
        (
            {**good, "targets": good["targets"].astype(np.int64)},
            r"targets is int64\[4, 3\], the treaty says int32\[4, 3\]",
        ),
        (
            {**good, "tokens": good["tokens"][:3]},
            r"tokens is int32\[3, 16\], the treaty says int32\[4, 16\]",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            batch_spec.check(changed, objective, 4)
