"""The code of a model card runs, and predicts what the model predicts here."""

import pytest

from data.config import Data
from data.objectives import MaskedLm, PermutationLm
from pretrain.config import Run
from pretrain.convert.read_write import write_model
from pretrain.families import FAMILIES
from pretrain.inference.fill_mask import MaskFiller
from pretrain.publish.cards.card_data import format_scores
from pretrain.publish.cards.loading_lines import make_loading_lines
from pretrain.publish.cards.model_card import find_task, make_card
from pretrain.workdir.trained import Trained
from pretrain.workdir.workdir import Workdir
from tests.pretrain.finetune.encoders import draw_params, make_encoders, trained_vocabularies
from tests.tiny import fit_sizes


@pytest.mark.more
def test_the_code_of_an_xlnet_fills_a_gap(tmp_path, capsys):
    pytest.importorskip("torch", reason="the extra `peers` is not installed")
    pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    model = make_encoders()["xlnet"]
    run = Run(model=model, data=Data(objective=PermutationLm(length=16)))
    vocabulary, params = trained_vocabularies()["xlnet"], draw_params(run)
    trained = Trained(Workdir.open(tmp_path), run, 7, params, vocabulary)
    write_model(tmp_path / "out", model, params, vocabulary)
    lines = make_loading_lines(run, vocabulary, str(tmp_path / "out"))
    exec("\n".join(lines), names := {})
    printed = capsys.readouterr().out.strip()
    (found,) = MaskFiller(trained, 1, 1)(["It is a [MASK]."], [None])
    best = found["masks"][0][0]
    assert printed == vocabulary.decode([best["id"]]).strip()
    shares = names["scores"].detach().softmax(-1).flatten()
    assert best["probability"] == pytest.approx(float(shares.max()), abs=1e-5)
    card = make_card(trained)
    assert "It fills gaps (`[MASK]`)" in card and find_task(model) == "text-generation"


@pytest.mark.parametrize(("name", "has_pooler"), [("bert", True), ("neobert", False)])
def test_a_card_names_the_parts_that_masks_alone_do_not_train(tmp_path, name, has_pooler):
    model = fit_sizes(FAMILIES[name].config, {"vocab": 72, "width": 24, "depth": 1})
    run = Run(model=model, data=Data(objective=MaskedLm(length=16)))
    card = make_card(Trained(Workdir.open(tmp_path), run, 7, {}, trained_vocabularies()["bert"]))
    assert ("learned nothing here" in card) == has_pooler


def test_a_score_that_is_not_finite_is_named():
    """metrics.jsonl has null for it."""
    rows = [{"step": 4, "heldout_loss": None, "heldout_perplexity": 2.5}]
    lines = format_scores(rows, 4).splitlines()
    assert "| loss | not finite |" in lines and "| perplexity | 2.5 |" in lines
