"""BLEU of a model of pairs of texts: at each evaluation of `train`, in `evaluate`, and in the report."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from data.config import Data
from data.mixed_stream import open_stream
from data.objectives import Seq2Seq
from data.prepare.build import PrepareRequest, prepare_store
from models import build
from models.config.transformer import TransformerConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.config import AdamW, Checkpoint, Evaluate, Mesh, Train
from pretrain.evaluation.task_metrics import METRICS
from pretrain.inference.text_generation import TranslationWriter
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.sharding import format_path, make_mesh, make_param_sharding
from pretrain.reporting.curves import list_curves
from pretrain.settings.overrides import ConfigError
from pretrain.training.evaluation import make_evaluator
from pretrain.training.loop import train
from pretrain.training.losses import make_loss
from pretrain.workdir.metrics_file import read_metrics
from pretrain.workdir.trained import Trained

pytest.importorskip("sacrebleu")
WORDS = ["fox", "dog", "cat", "hen", "walks", "sees", "the", "a"]
MODEL = TransformerConfig(
    vocab=64, width=16, depth=1, decoder_depth=1, num_heads=2, mlp=24, dropout=0.0
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A Transformer with random parameters, and a store of 24 pairs and 11 held-out ones, one of
    them too long for a row.
    """
    folder, rng = tmp_path_factory.mktemp("pairs"), np.random.default_rng(0)

    def write(name, count, *more):
        pairs = [
            " ".join(rng.choice(WORDS, rng.integers(2, 5))) + "\t" + " ".join(rng.choice(WORDS, 3))
            for _ in range(count)
        ]
        (folder / name).write_text("\n".join([*pairs, *more]) + "\n")
        return str(folder / name)

    sources = write("train.tsv", 24), write("valid.tsv", 10, "the fox " * 20 + "\ta dog")
    request = PrepareRequest(
        sources[:1],
        validation=sources[1:],
        held_out=0.0,
        document="pair",
        field="source,target",
        vocab_size=27,
        layout="transformer",
    )
    store = prepare_store(request, folder / "store").store
    run = dataclasses.replace(
        make_starting_run(MODEL),
        data=Data(
            store=str(folder / "store"),
            objective=Seq2Seq(length=24, target_length=12),
            batch_size=8,
        ),
        train=Train(steps=2, compute_dtype="float32"),
        evaluate=Evaluate(every=1, metrics=("bleu", "rouge1")),
        checkpoint=Checkpoint(every=1, best="bleu"),
    )
    # Large enough for the texts to differ.
    params = jax.tree.map(lambda leaf: 4 * np.asarray(leaf), make_initializer(run)())
    return Trained(None, run, 0, params, store.vocabulary), store


@pytest.mark.parametrize("mesh", [Mesh(data=1), Mesh(2, 2, 2)])
def test_texts_are_those_of_predict(trained, monkeypatch, mesh):
    """Each pair alone, on one device or on eight; the reference is the target."""
    model, store = trained
    seen = []
    recorded = METRICS["rouge1"]._replace(compute_score=lambda *texts: seen.append(texts) or 1.0)
    monkeypatch.setitem(METRICS, "rouge1", recorded)
    run = model.run
    mesh = make_mesh(mesh, jax.devices()[: mesh.data * mesh.fsdp * mesh.model])
    params = jax.tree_util.tree_map_with_path(
        lambda keys, leaf: jax.device_put(
            leaf, make_param_sharding(format_path(keys), leaf.shape, mesh)
        ),
        model.params,
    )
    stream = open_stream(store, run.data, split="heldout", seed=0, for_evaluation=True)
    evaluate = make_evaluator(
        build(run.model, **make_model_hooks(mesh, [])),
        make_loss(run.data.objective),
        mesh,
        compute_dtype="float32",
        metrics=("rouge1",),
        objective=run.data.objective,
    )
    begun = []
    with jax.set_mesh(mesh):
        scores = evaluate(params, stream, lambda: begun.append(1))
    ((texts, references),) = seen
    split = store.open_split("heldout")
    sides = [
        split.tokens[a:b].tolist()
        for a, b in zip(split.sentence_starts[:-1], split.sentence_starts[1:])
    ][:20]  # without the pair that is too long
    decode, eos = store.vocabulary.decode, store.vocabulary.eos
    assert references == [decode(ids) for ids in sides[1::2]]
    writer = TranslationWriter(model, 12, 4)
    expected = writer.generate_ids([[*ids, eos] for ids in sides[::2]], 0)
    special = store.vocabulary.special
    assert texts == [
        decode([i for i in ids if i < len(special) and not special[i]]).strip() for ids in expected
    ]
    assert len(set(texts)) > 1 and scores["rouge1"] == 1 and len(begun) >= 3


@pytest.mark.more
def test_training_scores_each_evaluation_and_evaluate_agrees(trained, tmp_path, capsys):
    """A model that learns one target for all sources: its curve rises to 100."""
    model, _ = trained
    model.vocabulary.save(tmp_path / "vocabulary")
    for name, first in (("train", 0), ("valid", 24)):
        lines = [
            f"{WORDS[n % 8]} {WORDS[n % 7]}\tthe fox sees a hen" for n in range(first, first + 24)
        ]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    request = PrepareRequest(
        (str(tmp_path / "train.tsv"),),
        validation=(str(tmp_path / "valid.tsv"),),
        vocabulary=str(tmp_path / "vocabulary"),
        held_out=0.0,
        document="pair",
        field="source,target",
    )
    prepare_store(request, tmp_path / "store")
    run = dataclasses.replace(
        model.run,
        data=dataclasses.replace(
            model.run.data,
            store=str(tmp_path / "store"),
            objective=Seq2Seq(length=24, target_length=24),
        ),
        optimizer=AdamW(learning_rate=2e-2, warmup_steps=2),
        train=Train(steps=60, compute_dtype="float32"),
        evaluate=Evaluate(every=20, metrics=("bleu", "rouge1")),
    )
    train(run, tmp_path / "w")
    rows = [row for row in read_metrics(tmp_path / "w" / "metrics.jsonl") if "heldout_bleu" in row]
    assert [row["step"] for row in rows] == [20, 40, 60]
    scores = [row["heldout_bleu"] for row in rows]
    assert 0 <= scores[0] <= scores[-1] == pytest.approx(100)
    curves = {curve.file: curve for curve in list_curves(rows)}
    assert (curves["heldout_bleu.png"].label, curves["heldout_bleu.png"].heldout) == (
        "bleu",
        "heldout_bleu",
    )
    capsys.readouterr()
    assert main(["evaluate", "--workdir", str(tmp_path / "w"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bleu"] == pytest.approx(scores[-1]) and found["rouge1"] == pytest.approx(100)


def test_other_metrics_are_refused(trained, tmp_path):
    run = trained[0].run
    run = dataclasses.replace(
        run, evaluate=Evaluate(metrics=("accuracy",)), checkpoint=Checkpoint()
    )
    with pytest.raises(
        ConfigError,
        match="the metrics of seq2seq are bleu, bleu_13a, bleu_zh, bleu_char, rouge1, rouge2, rougeL",
    ):
        train(run, tmp_path / "w")
