"""A model whose attention mixes positions, and which transformers does not have: what the verbs
refuse, before anything is compiled or written.
"""

import jax
import pytest

from data.config import Data
from data.objectives import MaskedLm
from data.vocabulary.load import train_vocabulary
from models.config.classifier import ClassifierConfig
from models.config.linformer import LinformerConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_headed_run, make_initializer
from pretrain.config import ConfigError, Run, load
from pretrain.finetune import seed_summary
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.workdir import Workdir
from tests.pretrain.conftest import make_texts

LINFORMER = LinformerConfig(vocab=64, length=24, rank=4, width=16, depth=2, num_heads=2, mlp=24)
OBJECTIVE = MaskedLm(length=24, max_predictions=4, rows="documents")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.objective.rows=packed",
         r"data\.objective\.rows=packed: .* LinformerConfig mixes all positions of a row\. " r"Set data\.objective\.rows to documents, sentences or windows"),
        ("data.objective=CausalLm",
         r"a LinformerConfig is trained by MaskedLm or MaskedDiffusion, not by CausalLm, because it mixes all positions .* Set data\.objective=MaskedLm"),
    ],
)  # fmt: skip
def test_causal_use_and_packed_rows_are_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        load("linformer_tiny", [override])


def test_other_models_are_refused_without_that_reason():
    with pytest.raises(ConfigError, match="not by CausalLm$"):
        load("bert_tiny", ["data.objective=CausalLm"])
    assert load("bert_tiny", ["data.objective.rows=packed"])


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(make_texts(600), 40)


@pytest.fixture(params=["pretrained", "classifier"])
def workdir(request, vocabulary, tmp_path):
    """Return a workdir at step 0."""
    run = (
        Run(model=LINFORMER, data=Data(objective=OBJECTIVE))
        if request.param == "pretrained"
        else make_headed_run(ClassifierConfig(encoder=LINFORMER))
    )
    start_workdir(tmp_path / "w", run, jax.jit(make_initializer(run))(), vocabulary)
    return tmp_path / "w"


def test_a_map_and_the_export_of_a_head_for_transformers_are_refused(workdir, tmp_path, capsys):
    verb = ["--workdir", str(workdir), "--output", str(tmp_path / "out.html")]
    refused = [
        (["attention", *verb, "a fox"], "a LinformerConfig attends to mixtures of all positions")
    ]
    if isinstance(Workdir.open(workdir).run.model, ClassifierConfig):
        message = "transformers has no linformer with a fine-tuned head. `export --format jax`"
        refused.append((["export", *verb], message))
    else:
        assert main(["export", *verb[:2], "--output", str(tmp_path / "hf")]) == 0
        assert (tmp_path / "hf" / "modeling_linformer.py").exists()
    capsys.readouterr()
    for words, message in refused:
        assert main(words) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert message in line
        assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize("in_transformers", [True, False])
def test_finetune_names_the_export_that_is_possible(monkeypatch, in_transformers):
    monkeypatch.setattr(seed_summary, "find_best_checkpoint", lambda *_: (7, {"loss": 1.0}))
    text = seed_summary.format_seed_summary("w", ["w"], ["loss"], in_transformers)
    expected = "" if in_transformers else " --format jax"
    assert text.endswith(f"export --workdir w --step 7 --output FOLDER{expected}")
