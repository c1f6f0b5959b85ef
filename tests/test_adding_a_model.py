"""docs/adding_a_model.md is true: its four files, added to a copy of the program, make a family
that trains, is fine-tuned, exported and imported.
"""

import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.worked_examples import read_blocks, run_commands, write_texts

pytestmark = [pytest.mark.more, pytest.mark.slow]

PAGE = "docs/adding_a_model.md"
SCRIPT = """
run("train", "ernie_tiny", "--workdir", "run", "data.store=store")
run("finetune", "--from", "run", "--task", "classification", "--train", "labels.jsonl", "--heldout", "dev.jsonl",
    "--workdir", "labels", "--epochs", 1, "data.batch_size=8", "data.objective.length=16")
run("export", "--workdir", "run", "--output", "hf")
run("export", "--workdir", "labels", "--output", "hf_labels")
run("import", "hf", "--workdir", "imported")
run("export", "--workdir", "imported", "--output", "hf_again")

import numpy as np
from models import build
from pretrain.workdir.trained import open_trained
trained = open_trained("imported")
tokens = np.arange(8, 24).reshape(1, 16)
logits, _ = build(trained.run.model).apply({"params": trained.params}, tokens, tokens > 0)
np.savez("logits.npz", tokens=tokens, logits=logits)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a copy of the program with the page's files, in which SCRIPT was run."""
    place = tmp_path_factory.mktemp("family")
    examples = ({"text": text, "label": str("fox" in text)} for text in write_texts(place)[:24])
    lines = [json.dumps(example) + "\n" for example in examples]
    (place / "labels.jsonl").write_text("".join(lines))
    (place / "dev.jsonl").write_text("".join(reversed(lines)))
    run_commands(place, PAGE, SCRIPT)
    return place


def test_a_family_is_four_files():
    """It changes no file that exists: `run_commands` refuses a block of one."""
    places = [pathlib.Path(name).parent.as_posix() for name in read_blocks(PAGE)]
    assert places == ["models", "models/config", "pretrain/families", "configs"]


def test_it_trains_and_comes_back_from_an_export(place):
    steps = [json.loads(line) for line in (place / "run/metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["step"] == 4 and np.isfinite(steps[-1]["loss"])
    first, again = (load_file(place / name / "model.safetensors") for name in ("hf", "hf_again"))
    assert first.keys() == again.keys()
    assert all(np.array_equal(first[name], again[name]) for name in first)
    labels = json.loads((place / "hf_labels/config.json").read_text())
    assert labels["architectures"] == ["ErnieForSequenceClassification"]
    assert labels["id2label"] == {"0": "False", "1": "True"}


def test_its_logits_are_those_of_transformers(place):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    with np.load(place / "logits.npz") as file:
        found = dict(file)
    peer = transformers.ErnieForMaskedLM.from_pretrained(place / "hf").eval()
    with torch.no_grad():
        expected = peer(torch.tensor(found["tokens"])).logits.numpy()
    np.testing.assert_allclose(found["logits"], expected, atol=1e-4)
    for name in ("hf", "hf_labels"):
        loader = (
            transformers.AutoModelForSequenceClassification
            if "labels" in name
            else transformers.AutoModelForMaskedLM
        )
        _, report = loader.from_pretrained(place / name, output_loading_info=True)
        assert not report["missing_keys"] and not report["mismatched_keys"]
