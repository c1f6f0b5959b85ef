"""Contacts of residues: the correction and the fit by their definitions, `transformers`'
probabilities, and the verb.
"""

import json
import types

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import MaskedLm
from data.vocabulary.letters.alphabets import make_alphabet
from models.config.bert import BertConfig
from models.config.esm2 import Esm2Config
from pretrain.__main__ import main
from pretrain.config import Run
from pretrain.convert.read_write import write_model
from pretrain.inference import contacts
from pretrain.inference.contacts import ContactPair, Protein
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import open_placed, open_trained
from tests.models.conftest import make_model

SEQUENCES = ("MKVLACDEFGHIKLMNPQRS", "ACDWYVTSRQPNMLKIH", "GGGSSMKV")
CONFIG = Esm2Config(
    vocab=33, width=16, depth=2, num_heads=2, mlp=32, length=40, dropout=0.0, attention_dropout=0.0
)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Return the workdir of an ESM-2 of random parameters, with a random head of contacts."""
    _, params = make_model(CONFIG)
    rng = np.random.default_rng(3)
    params = {**params, "contact_weights": rng.normal(0, 20, 4).astype(np.float32)}
    params["contact_bias"] = np.array([-1.5], np.float32)
    run = Run(model=CONFIG, data=Data(objective=MaskedLm(length=40, max_predictions=6)))
    folder = tmp_path_factory.mktemp("contacts") / "w"
    start_workdir(folder, run, params, make_alphabet("esm2"))
    return folder


@pytest.fixture(scope="module")
def structures(tmp_path_factory):
    """Return the path of records, in which letters touch whose places sum to the length + 1."""
    path = tmp_path_factory.mktemp("structures") / "known.jsonl"
    records = [
        {"text": text, "contacts": [[i, len(text) + 1 - i] for i in range(1, len(text) // 2 + 1)]}
        for text in SEQUENCES
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


# ---- definitions -----------------------------------------------------------------


def test_the_correction_is_its_definition():
    weights = np.random.default_rng(0).random((3, 5, 5)).astype(np.float32)
    found = contacts.correct_average_products(weights)
    for one, corrected in zip(weights, found):
        both = one + one.T
        for i in range(5):
            for j in range(5):
                expected = both[i, j] - both[i].sum() * both[:, j].sum() / both.sum()
                assert corrected[i, j] == pytest.approx(expected, abs=1e-5)


def test_the_fit_reaches_the_least_loss():
    """scikit-learn's solver does not penalise the bias either."""
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is missing")
    rng = np.random.default_rng(1)
    x = rng.normal(0, 1, (400, 6))
    y = x @ [2, 0, -1, 0, 0, 0.1] + rng.logistic(size=400) > 1.5
    theirs = linear_model.LogisticRegression(
        l1_ratio=1, C=0.15, solver="saga", tol=1e-10, max_iter=20_000
    ).fit(x, y)
    weights, bias = contacts.minimize_penalized_loss(x, y, 0.15)
    np.testing.assert_allclose(weights, theirs.coef_[0], atol=1e-4)
    assert bias == pytest.approx(theirs.intercept_[0], abs=1e-4)
    assert (weights == 0).sum() == (theirs.coef_ == 0).sum() > 0


def test_the_head_that_shows_the_contacts_is_found():
    """Head 2 attends to them, the others at random; close pairs are not read."""
    rng, proteins, features = np.random.default_rng(2), [], []
    for _ in range(4):
        first, second = np.triu_indices(30, contacts.SEPARATION)
        chosen = rng.choice(len(first), 25, replace=False)
        pairs = frozenset(zip(first[chosen].tolist(), second[chosen].tolist()))
        close = frozenset((i, i + 2) for i in range(20))  # touch, and are left out
        proteins.append(Protein("here", "A" * 30, pairs | close))
        attention = rng.random((5, 30, 30)).astype(np.float32)
        for i, j in pairs:
            attention[2, i, j] += 4
        features.append(contacts.correct_average_products(attention))
    fitted = contacts.fit_contacts(features, proteins)
    weights = fitted["contact_weights"]
    assert weights.shape == (5,) and weights.argmax() == 2
    assert np.abs(np.delete(weights, 2)).max() < 0.1 * weights[2]
    found = contacts.predict_contacts(fitted, features[0])
    pairs = contacts.list_pairs(found)
    assert {(one.first, one.second) for one in pairs[:25]} <= proteins[0].contacts
    assert contacts.compute_precision(pairs, proteins[0]) == pytest.approx(25 / 30)


def test_precision_counts_the_first_pairs():
    pairs = [ContactPair(0, 7, 0.9), ContactPair(1, 8, 0.8), ContactPair(2, 9, 0.1)]
    protein = Protein("here", "AC", frozenset({(0, 7), (2, 9)}))
    assert contacts.compute_precision(pairs, protein) == 0.5


def test_proteins_without_contacts_teach_nothing():
    features = [np.zeros((2, 9, 9), np.float32)]
    for known, state in (((), "no pair touches"), ([(0, 8), (0, 7), (1, 8)], "all pairs touch")):
        with pytest.raises(ValueError, match=f"{state} that is 7 or more places apart"):
            contacts.fit_contacts(features, [Protein("", "A" * 9, frozenset(known))], 7)


# ---- the model -------------------------------------------------------------------


@pytest.mark.more
def test_transformers_predicts_the_same_contacts(workdir, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    trained = open_trained(workdir)
    write_model(tmp_path / "out", trained.run.model, trained.params, trained.encoding)
    theirs = transformers.EsmForMaskedLM.from_pretrained(
        tmp_path / "out", attn_implementation="eager"
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for text, found in zip(SEQUENCES, compute_probabilities(workdir)):
        row = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            expected = theirs.predict_contacts(row["input_ids"], row["attention_mask"])[0].numpy()
        assert expected.shape == found.shape == (len(text), len(text))
        assert expected.std() > 1e-3
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def compute_probabilities(workdir):
    trained, mesh = open_placed(workdir)
    with jax.set_mesh(mesh):
        proteins = [Protein("here", text) for text in SEQUENCES]
        features = list(contacts.compute_features(trained, mesh, proteins))
    return [contacts.predict_contacts(trained.params, each) for each in features]


# ---- the verb --------------------------------------------------------------------


def test_the_verb_prints_and_writes(workdir, structures, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the extra `report` is not installed")
    files = ["--output", str(tmp_path / "c.npz"), "--top", "3"]
    command = ["contacts", "--workdir", str(workdir)]
    assert main([*command, "--input", str(structures), *files]) == 0
    printed = capsys.readouterr().out
    found = compute_probabilities(workdir)
    with np.load(tmp_path / "c.npz") as arrays:
        for number, expected in enumerate(found):
            np.testing.assert_allclose(arrays[f"contacts_{number}"], expected, atol=1e-6)
    best = contacts.list_pairs(found[0])[0]
    assert best.second - best.first >= contacts.SEPARATION
    letters = SEQUENCES[0]
    line = f"{best.probability:10.4f}  {letters[best.first]}{best.first + 1} "
    assert line + f"{letters[best.second]}{best.second + 1}\n" in printed
    assert printed.count("precision of the first") == 3 and printed.count("residues") == 3
    assert main([*command, SEQUENCES[0], "--picture", str(tmp_path / "c.png")]) == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert main([*command, SEQUENCES[0], "--picture", str(tmp_path / "c.png")]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_fitted_head_is_a_new_workdir(workdir, structures, tmp_path, capsys):
    command = ["contacts", "--workdir", str(workdir), "--fit", str(structures)]
    assert main([*command, "--into", str(tmp_path / "v")]) == 0
    assert "contacts of 3 proteins by" in capsys.readouterr().out
    before, after = open_trained(workdir), open_trained(tmp_path / "v")
    changed = {"contact_weights", "contact_bias"}
    for name in before.params.keys() - changed:
        jax.tree.map(np.testing.assert_array_equal, before.params[name], after.params[name])
    assert any(np.any(before.params[name] != after.params[name]) for name in changed)
    origin = json.loads((tmp_path / "v" / "origin.json").read_text())
    assert origin["contacts"] == {"proteins": 3, "separation": 6}
    assert main([*command, "--into", str(tmp_path / "v")]) == 2
    assert "exists and is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "contacts takes sequences, or --input FILE, or --fit FILE --into V"),
        (["MKV", "--input", "FILE"], "contacts takes sequences, or --input FILE"),
        (["--fit", "FILE"], "--fit FILE and --into V belong together"),
        (["MKV", "--into", "v"], "--fit FILE and --into V belong together"),
        (["MKV", "--separation", "0"], "--separation 0: 1 or more"),
        (["MKV", "--top", "-1"], "--top -1: 0 or more"),
        (["MKV", "--picture", "a.svg"], "--picture a.svg: the name must end in .png"),
        (["MKV", "ACD", "--picture", "a.png"], "--picture draws one protein, not 2"),
        (["--fit", "FILE", "--into", "v", "--output", "a.npz"], "--output a.npz: not with --fit"),
        (["MK V"], "sequence 1: 4 characters are 3 tokens"),
        (["MKV" * 20], "sequence 1: a text of more than the model's 40 tokens"),
    ],
)
def test_bad_arguments(workdir, structures, capsys, words, message):
    words = [str(structures) if word == "FILE" else word for word in words]
    assert main(["contacts", "--workdir", str(workdir), *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize(
    "given", ['"x"', "[[1, 2, 3]]", "[[1]]", "[[0, 2]]", "[[1, 4]]", "[[2, 2]]", "[[1.0, 2]]", "{}"]
)
def test_bad_contacts(workdir, tmp_path, capsys, given):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "MKV", "contacts": {given}}}\n')
    assert main(["contacts", "--workdir", str(workdir), "--input", str(path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "a.jsonl:1: `contacts` is a list of pairs of different places, from 1 to" in line


def test_a_record_without_contacts_cannot_be_fitted(workdir, tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "MKV"}\n')
    words = ["--fit", str(path), "--into", str(tmp_path / "v")]
    assert main(["contacts", "--workdir", str(workdir), *words]) == 2
    assert "a.jsonl:1: no `contacts`, such as" in capsys.readouterr().err


def test_another_model_has_no_head_of_contacts():
    trained = types.SimpleNamespace(params={"mlm_head": {}}, run=Run(BertConfig(), Data()))
    with pytest.raises(ValueError, match="a BertConfig has no head of contacts"):
        contacts.check_head(trained)
