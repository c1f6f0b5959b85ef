"""By both strands a text and its reverse complement have one score and one vector."""

import jax
import numpy as np
import pytest

from data.vocabulary.alphabets import make_alphabet
from models.config.esm2 import Esm2Config
from pretrain.api.scoring import ScoringOptions, score_changes, score_requests
from pretrain.config import Mesh
from pretrain.inference.hidden_states import extract_features
from pretrain.inference.scoring.both_strands import BothStrandScorer
from pretrain.inference.scoring.mutations import score_mutations
from pretrain.inference.scoring.text_scoring import Text, TextScorer
from pretrain.inference.vectors.strand_features import check_pooling, extract_strand_features
from pretrain.mesh.sharding import make_mesh
from tests.pretrain.workdirs import make_trained

DNA, OTHER = "ACCGTNAAGCT", "AGCTTNACGGT"
CONFIG = Esm2Config(length=32, width=16, depth=2, num_heads=2, mlp=24)
COMPLEMENTS = str.maketrans("ACGTN", "TGCAN")


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(Mesh(), jax.devices()[:1])


@pytest.fixture(scope="module")
def trained():
    return make_trained(CONFIG, make_alphabet("nucleotides"), width=0.5).with_compute_dtype(
        "float32"
    )


@pytest.fixture(scope="module")
def scorers(trained, mesh):
    """Return a scorer by one strand and one by both."""
    return TextScorer(trained, mesh, batch_size=8), BothStrandScorer(trained, mesh, batch_size=8)


def test_the_other_strand_is_written_by_hand():
    assert DNA[::-1].translate(COMPLEMENTS) == OTHER


def test_a_score_is_the_mean_of_both_strands(scorers):
    plain, both = scorers
    texts = [Text("text 1", DNA), Text("text 2", OTHER), Text("text 3", DNA, (0, 3))]
    own, other, span = (score.total for score in plain(texts))
    (rest,) = plain([Text("text 4", OTHER, (len(DNA) - 3, len(DNA)))])
    assert abs(own - other) > 0.1  # the model knows no strands
    found = score_requests(both, texts)
    assert found[0]["strands"] == pytest.approx([own, other], abs=1e-5)
    means = [one["log_probability"] for one in found]
    assert means == pytest.approx([(own + other) / 2] * 2 + [(span + rest.total) / 2], abs=1e-5)
    bits = -means[0] / np.log(2) / len(DNA)
    assert found[0]["bits_per_byte"] == pytest.approx(bits) and found[0]["tokens"] == len(DNA)
    assert "strands" not in score_requests(plain, texts)[0]


def test_mutations_are_the_mean_of_both_strands(scorers):
    plain, both = scorers
    names, others = ["A1G", "C2T:C3A"], ["T11C", "G10A:G9T"]
    expected = np.mean(
        [
            score_mutations(plain, Text("t", DNA), names),
            score_mutations(plain, Text("t", OTHER), others),
        ],
        axis=0,
    )
    options = ScoringOptions("unread", DNA, mutations=names, both_strands=True)
    found = score_changes(both, [Text("text 1", DNA)], options)
    np.testing.assert_allclose([one["log_odds"] for one in found], expected, atol=1e-5)
    mirrored = both.score_mutations(Text("text 1", OTHER), others, "masked")
    np.testing.assert_allclose(mirrored, expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "mean_all"])
def test_a_vector_is_the_mean_of_both_strands(trained, mesh, pooling):
    texts = [("in:1", DNA), ("in:3", OTHER), ("in:4", "A" * 40)]
    with jax.set_mesh(mesh):
        plain = extract_features(
            trained, mesh, [*texts, ("in:5", "T" * 40)], ["last", "0"], pooling
        )
        both = extract_strand_features(trained, mesh, texts, ["last", "0"], pooling)
    for name in ("last", "layer_0"):
        own, other, first, second = plain.arrays[name]
        expected = [(own + other) / 2] * 2 + [(first + second) / 2]
        np.testing.assert_allclose(both.arrays[name], expected, atol=1e-6)
    assert (
        np.abs(plain.arrays["last"][0] - plain.arrays["last"][1]).max() > 1e-3 or pooling == "cls"
    )
    assert both.arrays["line"].tolist() == [1, 3, 4]
    assert both.arrays["cut"].tolist() == [False, False, True] and both.num_cut == 1
    assert both.num_texts == 3


def test_what_has_no_other_strand_is_refused(mesh, scorers):
    protein = make_trained(CONFIG, make_alphabet("esm2"))
    message = "^--both-strands: the piece 'L' of the vocabulary has no complement"
    with pytest.raises(ValueError, match=message):
        BothStrandScorer(protein, mesh)
    with pytest.raises(ValueError, match=message):
        extract_strand_features(protein, mesh, [("in:1", "LAG")])
    with pytest.raises(ValueError, match="^line 2: 'E' has no complement"):
        scorers[1]([Text("line 1", "ACG"), Text("line 2", "ACE")])
    with pytest.raises(ValueError, match="^--both-strands with --pooling none: .*take cls, mean"):
        check_pooling("none")
