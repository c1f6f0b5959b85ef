"""Rows for ELECTRA: every chosen token is masked, and the uniforms from which replacements are
sampled are uniform.
"""

import numpy as np
import pytest

from data.config import Data
from data.objectives import MaskedLm, ReplacedToken
from data.pipeline import Stream


@pytest.fixture(scope="module")
def streams(store):
    """Return streams of the same rows for both objectives."""
    shape = dict(length=22, max_predictions=4)
    return [
        Stream(store, Data(objective=kind(**shape), batch_size=64), seed=1)
        for kind in (ReplacedToken, MaskedLm)
    ]


def test_the_chosen_words_are_those_of_masked_lm_and_all_are_hidden(streams):
    ours, other = (stream.build_batch(3) for stream in streams)
    for key in ("attention_mask", "masked_positions", "labels", "label_weights"):
        np.testing.assert_array_equal(ours[key], other[key])
    hidden = np.zeros_like(ours["attention_mask"])
    row, slot = np.nonzero(ours["label_weights"])
    hidden[row, ours["masked_positions"][row, slot]] = True
    assert (ours["token_ids"][hidden] == streams[0].vocabulary.mask).all()
    assert (other["token_ids"][hidden] != streams[0].vocabulary.mask).any()
    np.testing.assert_array_equal(ours["token_ids"][~hidden], other["token_ids"][~hidden])
    np.testing.assert_array_equal(ours["discriminator_weights"], ours["attention_mask"])


def test_uniforms_are_uniform_and_change_with_the_epoch(streams):
    stream, _ = streams
    steps = -(-stream.num_rows // 64)
    epochs = [
        np.concatenate(
            [stream.build_batch(step)["uniforms"] for step in range(n * steps, (n + 1) * steps)]
        )
        for n in (0, 1)
    ]
    uniforms = np.concatenate(epochs).ravel()
    assert uniforms.min() >= 0 and uniforms.max() < 1
    shares, _ = np.histogram(uniforms, 10, (0, 1))
    assert np.abs(shares / uniforms.size - 0.1).max() < 5 * np.sqrt(0.09 / uniforms.size)
    assert len(np.unique(uniforms)) > 0.99 * uniforms.size


def test_evaluation_draws_the_same_for_every_seed_and_scores_each_row_once(store, streams):
    stream, _ = streams
    other = Stream(store, stream.data, seed=2)
    last = stream.num_evaluation_batches - 1
    for key, value in stream.build_evaluation_batch(last).items():
        np.testing.assert_array_equal(value, other.build_evaluation_batch(last)[key])
    scored = sum(
        (stream.build_evaluation_batch(i)["discriminator_weights"] > 0).any(axis=1).sum()
        for i in range(last + 1)
    )
    assert scored == stream.num_rows and stream.num_rows % 64


def test_errors_name_this_objective(vocabulary):
    for objective, message in (
        (ReplacedToken(length=2), "replaced_token: length=2"),
        (ReplacedToken(mask_rate=0.25), "replaced_token: max_predictions=77 is"),
        (ReplacedToken(ngram=3), "ngram=3 and whole_words=False; .* consists of whole words"),
        (ReplacedToken(ngram=0, whole_words=True), "ngram=0"),
    ):
        with pytest.raises(ValueError, match=message):
            objective.check_vocabulary(vocabulary)
    ReplacedToken(mask_rate=0.25, max_predictions=128).check_vocabulary(vocabulary)
