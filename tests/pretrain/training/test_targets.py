"""A run, a step or an evaluation in which nothing is predicted is an error with its reason."""

import pytest

from data.pipeline import Stream
from data.vocabulary.load import train_vocabulary
from pretrain.__main__ import main
from pretrain.workdir.checkpoints import Checkpoints
from tests.pretrain.conftest import make_texts
from tests.small_store import write_store

NOTHING = "sentence_pair predicts nothing in"


def train_pairs(configs, workdir, *overrides):
    return main(["train", str(configs["bert"]), "--workdir", str(workdir), *overrides])


def take_targets_away(monkeypatch, method, is_emptied):
    """Let a method of Stream build batches without a masked token where is_emptied(stream, number)."""
    build = getattr(Stream, method)

    def build_emptied(stream, first, lo=0, hi=None, number=1):
        batch = build(stream, first, lo, hi, number)
        weights_NBP = batch["label_weights"].reshape(number, -1, batch["label_weights"].shape[1])
        for i in range(number):
            weights_NBP[i] *= not is_emptied(stream, first + i)
        return batch

    monkeypatch.setattr(Stream, method, build_emptied)


def test_a_run_whose_words_are_all_too_long_does_not_begin(configs, tmp_path, capsys):
    """Rows of one word: with blanks as the only boundaries no word fits the masks of a row."""
    texts = make_texts(600)
    texts = ["".join("".join(texts[i : i + 8]).split()) for i in range(0, 600, 6)]
    vocabulary = train_vocabulary(texts, 40)
    documents = [[ids] for ids in vocabulary.encode_batch(texts)]
    store = write_store(tmp_path / "store", vocabulary, documents[:90], heldout=documents[90:])
    overrides = [f"data.store={store.path}", "data.objective.whole_words=true"]
    long = ["data.objective.max_word_pieces=1000", "data.objective.word_boundaries=blanks"]
    assert train_pairs(configs, tmp_path / "run", *overrides, *long) == 2
    error = capsys.readouterr().err
    assert f"{NOTHING} the 8 rows of step 1; `inspect` with `--step 0` shows them" in error
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    short = ["data.objective.max_word_pieces=2", "train.steps=2"]
    assert train_pairs(configs, tmp_path / "run", *overrides, *short) == 0


@pytest.mark.held_by(1)
@pytest.mark.parametrize("every", [6, 0])
def test_a_run_whose_heldout_part_has_no_target_does_not_begin(
    configs, tmp_path, capsys, monkeypatch, every
):
    take_targets_away(
        monkeypatch, "build_evaluation_batch", lambda stream, _: "heldout" in stream.name
    )
    run = [f"evaluate.every={every}", "train.steps=2"]
    assert train_pairs(configs, tmp_path / "run", *run) == (2 if every else 0)
    if every:
        assert f"{NOTHING} its 47 rows; hold out more" in capsys.readouterr().err
    else:
        assert main(["evaluate", "--workdir", str(tmp_path / "run")]) == 2
        assert f"{NOTHING} its" in capsys.readouterr().err


@pytest.mark.held_by(1)
@pytest.mark.parametrize("empty", [3, 12])
def test_a_step_without_a_target_ends_a_run(configs, tmp_path, capsys, monkeypatch, empty):
    take_targets_away(monkeypatch, "build_batch", lambda _, number: number == empty - 1)
    assert train_pairs(configs, tmp_path / "run", "checkpoint.every=2") == 2
    assert f"{NOTHING} the 8 rows of step {empty}" in capsys.readouterr().err
    with Checkpoints(tmp_path / "run", read_only=True) as checkpoints:
        assert max(checkpoints.list_steps()) < empty
