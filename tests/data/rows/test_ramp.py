"""A mask rate that changes over the steps: the formula, the masks of each step, and bad settings."""

import dataclasses
import math

import numpy as np
import pytest

from data.config import Data
from data.objectives import MaskedLm
from data.pipeline import Stream
from data.rows.ramp import Ramp
from pretrain.config import from_json, load, to_json
from pretrain.settings.overrides import ConfigError

# Rows of 20 tokens of text: from 8 masks to 2.
RAMPED = MaskedLm(
    length=22, max_predictions=8, mask_rate=0.1, mask_ramp=Ramp(0.4, 2, 10), rows="documents"
)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_a_ramp_goes_from_its_start_to_the_settings_value(shape):
    ramp = Ramp(0.3, 100, 500, shape)
    for step, over in [
        (0, 0),
        (100, 0),
        (200, 0.25),
        (300, 0.5),
        (499, 0.9975),
        (500, 1),
        (9999, 1),
    ]:
        share = over if shape == "linear" else math.sin(math.pi * over / 2) ** 2
        expected = 0.3 * (1 - share) + 0.15 * share
        np.testing.assert_allclose(ramp.compute_values(step, 0.15), expected, rtol=1e-12)
    assert (Ramp().compute_values(np.arange(3), 0.15) == 0.15).all() and Ramp().is_constant


def test_each_step_masks_its_rate_of_each_row(store):
    """In slots of one size, for one batch and for several built together."""
    stream = Stream(store, Data(objective=RAMPED, batch_size=4), seed=1)
    plain = dataclasses.replace(RAMPED, mask_ramp=Ramp())
    special = stream.vocabulary.special
    together = stream.build_batch(0, number=13)
    for step in range(13):
        rate = 0.4 - 0.3 * min(max(step - 2, 0) / 8, 1)
        batch = stream.build_batch(step)
        assert batch["labels"].shape == (4, 8)
        text_BL = batch["token_ids"].copy()
        for row, positions in enumerate(batch["masked_positions"]):
            used = batch["label_weights"][row] > 0
            text_BL[row, positions[used]] = batch["labels"][row, used]
        tokens_B = (batch["attention_mask"] & ~special[text_BL]).sum(axis=1)
        wanted_B = np.clip(np.rint(tokens_B * rate), 1, 8)
        np.testing.assert_array_equal(batch["label_weights"].sum(axis=1), wanted_B)
        for key in batch:
            np.testing.assert_array_equal(batch[key], together[key][4 * step : 4 * step + 4])
        # The rows and the order of their masks are the ones without a ramp.
        if step >= 10:
            same = Stream(store, Data(objective=plain, batch_size=4), seed=1).build_batch(step)
            np.testing.assert_array_equal(batch["token_ids"], same["token_ids"])


def test_held_out_rows_are_masked_at_the_rate_of_the_end(store):
    """So their scores compare over the steps."""
    found = [
        Stream(store, Data(objective=objective, batch_size=4)).build_evaluation_batch(0)
        for objective in (RAMPED, dataclasses.replace(RAMPED, mask_ramp=Ramp()))
    ]
    for key in found[0]:
        np.testing.assert_array_equal(found[0][key], found[1][key])


def test_a_ramp_is_set_by_words_and_saved():
    words = ["mask_ramp.start=0.3", "mask_ramp.last_step=1000", "mask_rate=0.15"]
    run = load("bert_tiny", [f"data.objective.{word}" for word in words])
    assert run.data.objective.mask_ramp == Ramp(0.3, 0, 1000)
    assert from_json(to_json(run)) == run
    with pytest.raises(ConfigError, match="a ramp from step 0 to step 0 ends before it begins"):
        load("bert_tiny", ["data.objective.mask_ramp.start=0.3"])
    with pytest.raises(ConfigError, match="a ramp to step 9 needs a start"):
        load("bert_tiny", ["data.objective.mask_ramp.last_step=9"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            dict(mask_ramp=Ramp(-0.1, 0, 9)),
            r"mask_ramp.start=-0.1; the share of masked tokens must",
        ),
        (
            dict(max_predictions=7),
            r"max_predictions=7 is fewer than the 8 tokens that mask_ramp.start=0.4 masks",
        ),
        (dict(mask_rate=0.5), "fewer than the 10 tokens that mask_rate=0.5 masks"),
    ],
)
def test_the_slots_hold_the_largest_rate_of_a_ramp(fields, message, store):
    with pytest.raises(ValueError, match=message):
        Stream(store, Data(objective=dataclasses.replace(RAMPED, **fields), batch_size=4))
