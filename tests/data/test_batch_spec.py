"""There is a batch spec for exactly the existing objectives, and batches that violate it are
refused.
"""

import numpy as np
import pytest

from data import batch_spec
from data.objectives import OBJECTIVES, MaskedLm, SpanCorruption


def test_every_objective_has_a_batch_spec_and_a_size_for_each_letter():
    for name, objective in OBJECTIVES.items():
        assert objective.name == name
        for field in objective().describe_batch().values():
            assert set(field.dims) <= {"B", *objective().axis_sizes()}


def test_shapes():
    assert batch_spec.compute_shapes(
        MaskedLm(length=16, max_predictions=3, rows="documents"), 4
    ) == {
        "token_ids": (np.dtype("int32"), (4, 16)),
        "attention_mask": (np.dtype("bool"), (4, 16)),
        "masked_positions": (np.dtype("int32"), (4, 3)),
        "labels": (np.dtype("int32"), (4, 3)),
        "label_weights": (np.dtype("float32"), (4, 3)),
    }
    assert batch_spec.compute_shapes(SpanCorruption(), 2)["labels"] == (np.dtype("int32"), (2, 114))


def test_check_names_the_violation():
    objective = MaskedLm(length=16, max_predictions=3, rows="documents")
    good = {
        key: np.zeros(shape, dtype)
        for key, (dtype, shape) in batch_spec.compute_shapes(objective, 4).items()
    }
    batch_spec.check_batch(good, objective, 4)
    for changed, message in (
        ({**good, "extra": good["labels"]}, r"missing \[\], not in its batch spec: \['extra'\]"),
        ({key: good[key] for key in good if key != "label_weights"}, r"missing \['label_weights'\]"),
        ({**good, "labels": good["labels"].astype(np.int64)},
         r"labels is int64\[4, 3\], the batch spec says int32\[4, 3\]"),
        ({**good, "token_ids": good["token_ids"][:3]},
         r"token_ids is int32\[3, 16\], the batch spec says int32\[4, 16\]"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            batch_spec.check_batch(changed, objective, 4)
