"""Log-odds of mutations are those of the model's logits, by masked and by wild-type marginals."""

import jax
import numpy as np
import pytest

from data.vocabulary.letters.alphabets import make_alphabet
from models import build
from models.config.esm2 import Esm2Config
from pretrain.api.scoring import ScoringOptions, score_changes
from pretrain.config import Mesh
from pretrain.inference.scoring import mutations
from pretrain.inference.scoring.masked_scorers import PackedMaskedScorer
from pretrain.inference.scoring.mutations import read_mutation, score_mutations
from pretrain.inference.scoring.text_scoring import Text, TextScorer
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.sharding import make_mesh
from tests.pretrain.workdirs import make_trained

SEQUENCE = "MKVLAWGFTRNDE"
NAMES = ["K2A", "E13M", "V3C:L4D", "M1M"]
TEXT = Text("text 1", SEQUENCE)


@pytest.fixture(scope="module")
def trained():
    config = Esm2Config(length=32, width=16, depth=2, num_heads=2, mlp=24)
    return make_trained(config, make_alphabet("esm2"), width=0.5).with_compute_dtype("float32")


@pytest.fixture(scope="module")
def scorer(trained):
    return TextScorer(trained, make_mesh(Mesh(), jax.devices()[:1]), batch_size=4)


def compute_log_p(trained, masked):
    """Return the log probabilities [L, V] of the letters, of which some are masked."""
    ids = np.array([[0, *trained.vocabulary.encode(SEQUENCE), 2]])
    ids[0, [place + 1 for place in masked]] = trained.vocabulary.mask
    logits = build(trained.run.model).apply({"params": trained.params}, ids, ids >= 0)[0]
    return np.asarray(jax.nn.log_softmax(logits[0, 1:-1]))


@pytest.mark.parametrize(
    ("marginals", "packs"), [("masked", False), ("wild_type", False), ("masked", True)]
)
def test_they_are_those_of_the_logits(trained, scorer, marginals, packs, monkeypatch):
    monkeypatch.setattr(mutations, "MOST_PLACES", 4)  # several rows
    if packs:
        hooks = make_model_hooks(scorer.mesh, [])
        scorer.scorer = PackedMaskedScorer(trained, scorer.mesh, hooks)
    expected = []
    for name in NAMES:
        mutation = read_mutation(name, SEQUENCE)
        log_p = compute_log_p(trained, mutation.places if marginals == "masked" else ())
        before, after = (
            trained.vocabulary.encode(letters)
            for letters in (
                "".join(SEQUENCE[i] for i in mutation.places),
                "".join(mutation.letters),
            )
        )
        places = list(mutation.places)
        expected.append(float((log_p[places, after] - log_p[places, before]).sum()))
    found = score_mutations(scorer, TEXT, NAMES, marginals)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found[-1] == 0 and min(map(abs, found[:-1])) > 1e-3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("G17A", "the text has 13 letters, not 17"),
        ("A2T", "letter 2 of the text is 'K', not 'A'"),
        ("K2A:K2C", "a letter of the text changes twice"),
        ("K0A", "'K0A' is not the letter of the text"),
        ("K2", "'K2' is not the letter"),
        ("K2A:", "'' is not the letter"),
        ("K2J", "'K' or 'J' is no token of its own"),
    ],
)
def test_what_is_no_mutation_of_the_text_is_an_error(scorer, name, message):
    with pytest.raises(ValueError, match=f"text 1, mutation '{name}': .*{message}"):
        score_mutations(scorer, TEXT, [name])


def test_they_are_of_one_text_and_have_ways_of_their_own(scorer):
    asked = {"model": "unread", "texts": SEQUENCE, "mutations": NAMES}
    with pytest.raises(ValueError, match="--by masked: mutations are scored by --marginals alone"):
        ScoringOptions(**asked, by="masked")
    with pytest.raises(ValueError, match="--mutations are of one text; give one"):
        score_changes(scorer, [TEXT, TEXT], ScoringOptions(**asked))
    (found, *_) = score_changes(scorer, [TEXT], ScoringOptions(**asked))
    log_odds = score_mutations(scorer, TEXT, ["K2A"])[0]
    assert found == {"mutation": "K2A", "log_odds": pytest.approx(log_odds, rel=1e-5)}
