"""A recurrent translation model: its run is killed and continued, it translates, its alignment is
drawn; and what the verbs refuse.
"""

import json
import re

import jax
import pytest

from data.config import Data
from data.objectives import Seq2Seq
from data.store.reader import Store
from models.config.seq2seq_lstm import Seq2SeqLstmConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer
from pretrain.config import AdamW, Checkpoint, ConfigError, Evaluate, Run, Train, load
from pretrain.training.new_workdir import start_workdir
from tests.pretrain.training.recurrent_runs import check_killed_run

NUMBERS = "one two three four five six seven eight nine ten".split()
MODEL = Seq2SeqLstmConfig(vocab=64, width=16, embedding=12, mlp=8, dropout=0.1)


def make_run(store, **model):
    return Run(
        model=Seq2SeqLstmConfig(**vars(MODEL) | model),
        data=Data(store=store, objective=Seq2Seq(length=24, target_length=24), batch_size=8),
        optimizer=AdamW(learning_rate=0.01, warmup_steps=4, weight_decay=0.0),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the path of a store of pairs: a few numbers, and the same reversed."""
    folder = tmp_path_factory.mktemp("pairs")
    with open(folder / "pairs.tsv", "w") as file:
        for i in range(200):
            words = [NUMBERS[(i * i + 3 * i * j + j) % 10] for j in range(1 + i % 4)]
            file.write(f"{' '.join(words)}\t{' '.join(reversed(words))}\n")
    words = "--document pair --layout transformer --algorithm bpe --vocab-size 40 --held-out 0.1"
    where = [str(folder / "pairs.tsv"), "--output", str(folder / "store")]
    assert main(["prepare", *where, *words.split()]) == 0
    return str(folder / "store")


def start(store, folder, **model):
    """Return a workdir of random parameters, at step 0."""
    run, vocabulary = make_run(store, **model), Store.open(store).vocabulary
    start_workdir(folder / "w", run, jax.jit(make_initializer(run))(), vocabulary)
    return str(folder / "w")


@pytest.mark.more
@pytest.mark.usefixtures("whole")  # test_meshes_and_kills.py kills others like it
def test_a_run_that_is_killed_ends_with_the_same_bits(store, tmp_path):
    check_killed_run(make_run(store), tmp_path)


def test_it_translates_and_its_alignment_is_drawn(store, tmp_path, capsys):
    workdir = start(store, tmp_path)
    for strategy in ([], ["--beams", "3"]):
        assert main(["predict", "--workdir", workdir, "--json", *strategy, "one two three"]) == 0
        (line,) = capsys.readouterr().out.strip().splitlines()
        assert "written" in json.loads(line)
    page, images = tmp_path / "page.html", tmp_path / "images"
    output = ["--output", str(page), "--images", str(images)]
    pair = tmp_path / "pair.jsonl"
    pair.write_text(json.dumps({"text": "one two three", "target": "three two one"}))
    assert main(["attention", "--workdir", workdir, *output, "--input", str(pair)]) == 0
    assert [path.name for path in images.iterdir()] == ["text_1_cross_layer_1.png"]
    names = re.findall(r'"name": ?"(\w+)"', page.read_text())
    assert names == ["cross"]


def test_without_attention_there_is_no_picture(store, tmp_path, capsys):
    workdir = start(store, tmp_path, score=None, direction="backward")
    output = str(tmp_path / "page.html")
    for words, message in (
        (["attention", "one", "--output", output], "has no attention to show"),
        (["export", "--output", output], "transformers has no LSTM encoder-decoder"),
    ):
        capsys.readouterr()
        assert main([words[0], "--workdir", workdir, *words[1:]]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ("model.score=cosine", "model.score"),
        ("model.direction=upward", "model.direction"),
        ("model.num_heads=4", "num_heads"),
        ("data.objective=CausalLm", "is trained by Seq2Seq, not by CausalLm"),
    ],
)
def test_settings_that_it_does_not_have_are_refused(override, error):
    with pytest.raises(ConfigError, match=error):
        load("seq2seq_luong", [override])


@pytest.mark.parametrize("name", ["bahdanau", "luong", "plain"])
def test_a_score_of_none_is_no_attention(name):
    assert load(f"seq2seq_{name}", ["model.score=none"]).model.score is None
