"""`train --from RUN --new-rows`: a trained model with an extended or another vocabulary."""

import functools
import json

import jax
import numpy as np
import optax
import pytest

from data.config import Data
from data.objectives.masked_lm import MaskedLm
from data.pipeline import Stream
from data.vocabulary.load import train_vocabulary
from data.vocabulary.released import read_wordpiece
from models import build
from models.config.bert import BertConfig
from models.layers.layer_layout import flatten_params
from pretrain.__main__ import main
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from pretrain.settings.overrides import ConfigError
from pretrain.training.beginnings.beginning import start_from
from pretrain.training.beginnings.given import GivenModel
from pretrain.training.beginnings.new_vocabulary import (
    change_vocabulary,
    find_vocabulary_axes,
    match_tokens,
    plan_rows,
)
from pretrain.training.losses import find_loss
from pretrain.training.new_workdir import start_workdir
from pretrain.training.state import init_params
from pretrain.workdir.trained import open_trained
from tests.pretrain.conftest import make_texts
from tests.pretrain.convert.test_name_maps import random_params
from tests.small_store import write_store

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
STEMS = ["walk", "talk", "jump", "look", "turn", "play", "rain", "paint"]
ENDS = ["##s", "##ed", "##ing", "##er"]
WORDS = ["the", "a", "of", "and", "."]
NEW = [stem + end[2:] for stem in STEMS for end in ENDS]


def read_words(*more):
    return read_wordpiece("\n".join([*SPECIAL, *WORDS, *STEMS, *ENDS, *more]), lowercase=True)


def write_texts(count):
    """Sentences with one word of pieces, whose stem stands again further on."""
    rng = np.random.default_rng(3)
    texts = []
    for _ in range(count):
        stem, end = rng.integers(0, len(STEMS)), rng.integers(0, len(ENDS))
        others = [WORDS[i] for i in rng.integers(0, 4, 4)]
        word = NEW[stem * len(ENDS) + end]
        texts.append(" ".join([*others[:2], word, *others[2:], STEMS[stem], "."]))
    return texts


def write_word_store(folder, vocabulary):
    documents = [[ids] for ids in vocabulary.encode_batch(write_texts(400))]
    return write_store(folder, vocabulary, documents[:320], heldout=documents[320:])


def make_run(store, steps):
    return Run(
        model=BertConfig(
            vocab=store.vocabulary.size, length=32, width=32, depth=1, num_heads=2, mlp=64,
            dropout=0.0, attention_dropout=0.0,
        ),
        data=Data(
            objective=MaskedLm(length=32, max_predictions=6, rows="documents"),
            store=str(store.path),
            batch_size=32,
        ),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=5),
        train=Train(steps=steps, compute_dtype="float32"),
        evaluate=Evaluate(every=0),
        checkpoint=Checkpoint(every=steps),
    )  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The same texts with the pieces of words, and with whole words beside them."""
    folder = tmp_path_factory.mktemp("stores")
    return {
        "old": write_word_store(folder / "old", read_words()),
        "extended": write_word_store(folder / "extended", read_words(*NEW)),
    }


@functools.cache
def make_measure(model):
    """Return the mean negative log-likelihood of a batch's targets, and its gradient, compiled."""
    module, loss = build(model), find_loss("masked_lm")

    def measure(params, batch):
        outputs = module.apply({"params": params}, **loss.select_inputs(batch))
        logits_BPV = outputs[0] if isinstance(outputs, tuple) else outputs
        scores_BP = jax.nn.log_softmax(logits_BPV)[
            np.arange(len(batch["labels"]))[:, None], np.arange(6), batch["labels"]
        ]
        return -(scores_BP * batch["label_weights"]).sum() / batch["label_weights"].sum()

    return jax.jit(jax.value_and_grad(measure))


def list_batches(run, store, split):
    return list(Stream(store, run.data, split=split, seed=0).iterate_evaluation_batches())


def start_run(run, params, vocabulary, place):
    start_workdir(str(place), run, params, vocabulary)
    return str(place)


@pytest.fixture(scope="module")
def old_run(stores, tmp_path_factory):
    """A run with random parameters, none of which is a round number."""
    run = make_run(stores["old"], 1)
    params = random_params(run.model)
    place = tmp_path_factory.mktemp("runs") / "old"
    return start_run(run, params, stores["old"].vocabulary, place)


@pytest.fixture(scope="module")
def trained(stores, tmp_path_factory):
    """A run that has learned the texts in pieces, in 160 steps."""
    run = make_run(stores["old"], 1)
    init = functools.partial(init_params, build(run.model), run.data.objective, 0)
    measure, optimizer = make_measure(run.model), optax.adam(3e-3)
    with jax.numpy_dtype_promotion("standard"):
        params, update = jax.jit(init)(), jax.jit(optimizer.update)
        state = optimizer.init(params)
        for _ in range(16):
            for batch in list_batches(run, stores["old"], "train"):
                updates, state = update(measure(params, batch)[1], state)
                params = optax.apply_updates(params, updates)
    place = tmp_path_factory.mktemp("runs") / "trained"
    return start_run(run, jax.device_get(params), stores["old"].vocabulary, place)


def begin(place, store, workdir, new_rows):
    start_from(make_run(store, 1), str(workdir), place, new_rows=new_rows)
    return open_trained(str(workdir))


def compute_logits(trained, ids):
    positions = np.tile(np.arange(6, dtype=np.int32), (len(ids), 1))
    apply = jax.jit(functools.partial(build(trained.run.model).apply, masked_positions=positions))
    params = {"params": jax.device_get(trained.params)}
    return np.asarray(apply(params, ids, np.ones_like(ids, bool), np.zeros_like(ids))[0])


def check_old_logits(place, after, old):
    """Logits of old tokens are equal within rounding, since a processor may add the products of a
    wider matrix in another order. The loss grows by the new tokens' share of the softmax alone:
    log(1 + sum of e^new / sum of e^old).
    """
    ids = np.array([ids[:6] for ids in old.encode_batch(write_texts(8))], np.int32)
    before, logits = compute_logits(open_trained(place), ids), compute_logits(after, ids)
    assert logits.shape[-1] == old.size + len(NEW)
    np.testing.assert_allclose(logits[..., : old.size], before, rtol=1e-5, atol=1e-5)
    exps = np.exp(logits.astype(np.float64))
    grown = np.log(1 + exps[..., old.size :].sum(-1) / exps[..., : old.size].sum(-1))
    sums = [np.log(np.exp(each.astype(np.float64)).sum(-1)) for each in (before, logits)]
    np.testing.assert_allclose(sums[1] - sums[0], grown, atol=1e-5)


def test_old_texts_have_their_logits(stores, old_run, tmp_path, capsys):
    old, extended = stores["old"].vocabulary, stores["extended"].vocabulary
    after = begin(old_run, stores["extended"], tmp_path / "new", "pieces")
    assert after.run.model.vocab == extended.size == old.size + len(NEW)
    assert after.vocabulary == extended
    printed = capsys.readouterr().out
    assert (
        f"of {extended.size} tokens {old.size} have their old row, {len(NEW)} the mean" in printed
    )
    assert "the optimizer begins anew" in printed
    assert json.loads((tmp_path / "new/origin.json").read_text())["new_rows"] == "pieces"
    check_old_logits(old_run, after, old)
    # The rows and biases of new tokens are means of the pieces' rows; all else is as it was.
    before, after = (
        flatten_params(jax.device_get(each.params)) for each in (open_trained(old_run), after)
    )
    grown = {path for path in before if before[path].shape != after[path].shape}
    assert grown == {"bert/embeddings/token_embedding/embedding", "mlm_head/bias"}
    for path in before:
        if path not in grown:
            np.testing.assert_array_equal(after[path], before[path])
    for path in grown:
        np.testing.assert_array_equal(after[path][: old.size], before[path])
    for number, word in enumerate(NEW):
        pieces = old.encode(word)
        assert len(pieces) == 2
        for path in grown:
            expected = before[path][pieces].astype(np.float64).mean(axis=0)
            np.testing.assert_allclose(after[path][old.size + number], expected, rtol=1e-6)


@pytest.mark.more
def test_rows_of_pieces_begin_with_a_lower_loss_than_the_mean(stores, trained, tmp_path):
    """On text with the new tokens."""
    losses, run = {}, make_run(stores["extended"], 1)
    batches = list_batches(run, stores["extended"], "heldout")
    for new_rows in ("pieces", "mean"):
        begun = begin(trained, stores["extended"], tmp_path / new_rows, new_rows)
        check_old_logits(trained, begun, stores["old"].vocabulary)
        params = jax.device_get(begun.params)
        measure = make_measure(begun.run.model)
        losses[new_rows] = np.mean([float(measure(params, batch)[0]) for batch in batches])
    assert losses["pieces"] < losses["mean"] - 0.2, losses


def test_another_vocabulary_takes_what_both_have():
    """Of another kind, in another order: by the text of a token and whether a word begins there."""
    old = train_vocabulary(make_texts(200), 40)
    words = [i for i, piece in enumerate(old.pieces) if piece[:1] == "▁" and piece[1:].isalpha()]
    ends = [i for i, piece in enumerate(old.pieces) if piece.isalpha()]
    word, end = max(words, key=lambda i: len(old.pieces[i])), ends[0]
    lines = ["[PAD]", old.pieces[word][1:], "[MASK]", "[UNK]", "[SEP]", "[CLS]"]
    new = read_wordpiece("\n".join([*lines, f"##{old.pieces[end]}", "unseen"]))
    found = match_tokens(old, new)
    assert found[[0, 2, 3, 4, 5]].tolist() == [old.pad, old.mask, old.unk, old.sep, old.cls]
    assert found[[1, 6, 7]].tolist() == [word, end, -1]
    plan = plan_rows(old, new, old.size + 4, new.size + 2, "pieces")
    # Rows without a token go to rows without a token.
    assert plan.copied_W[new.size :].tolist() == [old.size, old.size + 1]
    assert set(plan.pieces) == {7} and plan.pieces[7] == [
        i for i in old.encode("unseen") if i != old.unk
    ]
    table = np.random.default_rng(0).standard_normal((3, old.size + 4)).astype(np.float32)
    moved = plan_rows(old, new, old.size + 4, new.size + 9, "mean").move_rows(table, 1)
    assert moved.shape == (3, new.size + 9)
    np.testing.assert_array_equal(moved[:, 1], table[:, word])
    mean = table[:, : old.size][:, ~old.special].astype(np.float64).mean(axis=1)
    for row in (7, new.size + 8):  # a new token; a row without one, of which the old has too few
        np.testing.assert_allclose(moved[:, row], mean, rtol=1e-6)


def test_each_table_of_the_tokens_is_found(runs):
    """Tied and untied, in encoders and decoders; clusters and teachers are refused."""
    for name, count in (("bert", 2), ("t5_gated", 2)):
        axes = find_vocabulary_axes(runs[name], runs[name].model.vocab)
        assert len(axes) == count and all("embedding" in p or "head" in p for p in axes), axes
    for name, message in (("transformer_xl", "as of a cluster"), ("distilbert", "not trained")):
        with pytest.raises(ConfigError, match=message):
            find_vocabulary_axes(runs[name], runs[name].model.vocab)


def test_what_is_refused(stores, old_run, tmp_path, capsys):
    command = ["train", "bert_tiny", "--workdir", str(tmp_path / "w"), "--new-rows", "mean"]
    assert main(command) == 2
    assert "--new-rows mean: name the trained model by --from" in capsys.readouterr().err
    for flag in ("--tile", "--with-optimizer"):
        assert main([*command, "--from", old_run, flag]) == 2
        assert f"{flag}: not with --new-rows" in capsys.readouterr().err
    run = make_run(stores["extended"], 1)
    with pytest.raises(ConfigError, match="or add --new-rows pieces"):
        start_from(run, str(tmp_path / "w"), old_run, keeps_vocab=True)
    given = GivenModel("x", 0, run.model, {}, object())
    with pytest.raises(ConfigError, match="both models need a vocabulary of texts"):
        change_vocabulary(run, given, stores["old"].vocabulary, "mean")
    assert not (tmp_path / "w").exists()
