"""Mixtures of objectives in training: one loss of several, on any mesh, interrupted and resumed,
scored by part and by source.
"""

import dataclasses
import itertools
import json
from functools import partial

import jax
import numpy as np
import pytest

from data.config import Data
from data.mixed import Mixed, MixedPart
from data.mixed_stream import derive_seed
from data.objectives import CausalLm, MaskedNextToken
from data.pipeline import Stream
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.gpt2 import Gpt2Config
from pretrain.__main__ import main
from pretrain.config import (
    AdamW,
    Checkpoint,
    Evaluate,
    Mesh,
    Run,
    Train,
    load,
    override_run,
    to_json,
    validate_run,
)
from pretrain.mesh.sharding import make_batch_sharding, make_mesh
from pretrain.settings.overrides import ConfigError
from pretrain.training.losses import find_loss, make_loss
from pretrain.training.program import check_batch, make_program
from pretrain.training.state import init_params
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from pretrain.workdir.read_params import restore_params
from tests.pretrain.conftest import make_texts
from tests.small_store import write_store

TIMES = ("seconds", "input_seconds", "tokens_per_second")
HYBRID = Mixed(
    (
        MixedPart("masked", MaskedNextToken(length=12, max_predictions=4, mask_rate=0.3)),
        MixedPart("causal", CausalLm(length=10), share=3.0),
    )
)


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory):
    """Return a store of bytes with RoBERTa's special tokens, from two sources in one folder."""
    vocabulary = train_vocabulary(make_texts(600), 300, layout="roberta", algorithm="byte_bpe")
    encoded = iter(vocabulary.encode_batch(make_texts(600)))
    documents = [[next(encoded) for _ in range(1 + i % 9)] for i in range(100)]
    return write_store(
        tmp_path_factory.mktemp("two") / "store",
        vocabulary,
        {"in/long": documents[:60], "in/short": documents[60:80]},
        heldout={"in/long": documents[80:88], "in/short": documents[88:]},
    )


@pytest.fixture(scope="module")
def hybrid(two_sources):
    return Run(
        model=Gpt2Config(vocab=300, length=12, width=16, depth=2, num_heads=4, mlp=32, dropout=0.1),
        data=Data(objective=HYBRID, store=str(two_sources.path), batch_size=32),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=8, compute_dtype="float32"),
        evaluate=Evaluate(every=4, samples=2),
        checkpoint=Checkpoint(every=2, keep=10),
    )


def part_streams(run, source):
    """Return {part: a stream of its objective alone}."""
    rows = run.data.objective.count_part_rows(run.data.batch_size)
    return {
        part.name: Stream(
            source,
            Data(objective=part.objective, batch_size=rows[part.name]),
            seed=derive_seed(run.train.seed, part.name),
        )
        for part in run.data.objective.parts
    }


def run_steps(run, source, sizes=None, microbatches=1, count=2):
    """Return (state on the host, metrics) after so many steps on one device or a mesh."""
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, microbatches=microbatches))
    mesh = make_mesh(Mesh(*(sizes or (1,))), None if sizes else jax.devices()[:1])
    streams = part_streams(run, source)
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        state = program.init()
        for step in range(count):
            batch = {name: stream.build_batch(step) for name, stream in streams.items()}
            state, metrics = program.train_step(
                state, jax.device_put(batch, make_batch_sharding(mesh))
            )
        return jax.device_get(state), jax.device_get(metrics)


# ---- the loss ----------------------------------------------------------------


def test_the_loss_is_that_of_each_objective_alone_weighted(hybrid, two_sources):
    run = override_run(hybrid, ["data.objective.parts.masked.loss_weight=2"])
    streams = part_streams(run, two_sources)
    batch = {part: stream.build_batch(0) for part, stream in streams.items()}
    model, loss = build(run.model), make_loss(run.data.objective)
    params = jax.jit(lambda: init_params(model, run.data.objective, 0))()

    def sum_batch(loss, batch):
        def compute(params, batch):
            return loss.sum_batch(model, params, batch), loss.sum_weights(batch)

        return jax.jit(compute)(params, batch)

    sums, totals = sum_batch(loss, batch)
    expected, tokens = 0.0, 0.0
    weights = {"masked": 2.0, "causal": 0.75}
    for part, stream in streams.items():
        alone = find_loss(stream.objective.name)
        alone_sums, alone_totals = sum_batch(alone, batch[part])
        for term in alone_sums:
            assert sums[f"{part}/{term}"] == alone_sums[term]
            assert totals[f"{part}/{term}"] == alone_totals[term]
        mean = alone_sums[stream.objective.name] / alone_totals[stream.objective.name]
        expected += weights[part] * float(mean)
        tokens += float(alone.count_tokens(batch[part]))
    value = loss.compute_loss({term: sums[term] / totals[term] for term in sums})
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert float(loss.count_tokens(batch)) == tokens


def test_masked_rows_are_read_from_both_sides_and_causal_rows_are_not(hybrid):
    """Changing the last token changes every state of the bidirectional row, and only the last of
    the causal one.
    """
    model = build(hybrid.model)
    params = jax.jit(lambda: init_params(model, HYBRID, 0))()
    one = np.arange(12)[None] + 5
    other = np.where(np.arange(12) == 11, 99, one)

    apply = jax.jit(partial(model.apply, method="compute_states"))

    def compute_states(token_ids, **keys):
        return np.asarray(apply({"params": params}, token_ids, **keys))[0]

    causal = np.abs(compute_states(one) - compute_states(other)).max(axis=-1)
    assert (causal[:-1] == 0).all() and causal[-1] > 1e-3
    everywhere = {"masked_positions": np.arange(12)[None]}
    assert (
        np.abs(compute_states(one, **everywhere) - compute_states(other, **everywhere)).max(axis=-1)
        > 1e-6
    ).all()
    picked = compute_states(one, masked_positions=np.array([[7, 2, 0]]))
    np.testing.assert_array_equal(picked, compute_states(one, **everywhere)[[7, 2, 0]])


@pytest.mark.more
def test_parameters_agree_on_a_mesh_and_over_microbatches(hybrid, two_sources):
    run = dataclasses.replace(
        hybrid, model=dataclasses.replace(hybrid.model, dropout=0.0, attention_dropout=0.0)
    )
    expected, metrics = run_steps(run, two_sources)
    assert {"masked/masked_next_token", "causal/causal_lm"} <= metrics.keys()
    for sizes, microbatches in (((2, 2, 2), 1), (None, 4)):
        state, other = run_steps(run, two_sources, sizes, microbatches)
        for a, b in zip(*map(jax.tree.leaves, (expected.params, state.params)), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)
        np.testing.assert_allclose(metrics["loss"], other["loss"], rtol=1e-6)


# ---- a whole run -------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(hybrid, tmp_path_factory):
    """Return (path of the configuration, workdir of the uninterrupted run)."""
    folder = tmp_path_factory.mktemp("hybrid")
    path = folder / "hybrid.json"
    path.write_text(to_json(hybrid))
    assert main(["train", str(path), "--workdir", str(folder / "run")]) == 0
    return path, folder / "run"


def read_rows(workdir):
    return [
        {key: value for key, value in row.items() if key not in TIMES}
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
    ]


def drop_scores(found):
    """Return the rows without scores: a run is also scored where it stops."""
    return [
        {name: value for name, value in row.items() if not name.startswith("heldout_")}
        for row in found
    ]


def test_a_run_that_was_stopped_ends_with_the_same_bits(trained, tmp_path):
    path, whole = trained
    words = ["train", str(path), "--workdir", str(tmp_path / "run")]
    assert main([*words, "train.stop_at_step=3"]) == 0
    assert main([*words, "train.stop_at_step=0"]) == 0
    (_, step, expected), (_, other, params) = (
        restore_params(whole),
        restore_params(tmp_path / "run"),
    )
    assert step == other == 8
    jax.tree.map(np.testing.assert_array_equal, expected, params)
    assert drop_scores(read_rows(whole)) == drop_scores(read_rows(tmp_path / "run"))
    assert read_rows(whole)[-1] == read_rows(tmp_path / "run")[-1]


def test_a_checkpoint_records_the_next_unread_row_of_each_part(trained, tmp_path, capsys):
    path, whole = trained
    with Checkpoints(whole, read_only=True) as checkpoints:
        assert checkpoints.load_record(6)["rows"] == {"masked": 48, "causal": 144}
    words = ["train", str(path), "--workdir", str(tmp_path / "run"), "evaluate.every=0"]
    assert main([*words, "train.stop_at_step=2"]) == 0
    assert main([*words, "train.stop_at_step=3", "data.batch_size=64", "--allow-changes"]) == 0
    errors = capsys.readouterr().err
    assert (
        "2 steps have read 16 rows of masked: step 3 continues after them with 16 rows per step"
        in errors
    )
    with Checkpoints(tmp_path / "run", read_only=True) as checkpoints:
        assert checkpoints.load_record(3)["rows"] == {"masked": 32, "causal": 96}


def test_scores_are_reported_by_part_and_by_source(trained, hybrid, two_sources, capsys):
    """The loss of each source equals its rows' alone, one by one; together they give the
    whole.
    """
    path, workdir = trained
    scores = {
        name.removeprefix("heldout_"): value
        for name, value in read_rows(workdir)[-1].items()
        if name.startswith("heldout_")
    }
    _, _, params = restore_params(workdir)
    model, whole = build(hybrid.model), 0.0
    for part, objective in (("masked", HYBRID.parts[0].objective), ("causal", CausalLm(length=10))):
        stream = Stream(two_sources, Data(objective=objective, batch_size=1), split="heldout")
        loss, total, targets = find_loss(objective.name), {}, {}
        bounds = stream.table.offsets.tolist()
        for source, (lo, hi) in zip(("long", "short"), itertools.pairwise(bounds), strict=True):
            rows = [stream.build_evaluation_batch(i) for i in range(lo, hi)]
            batch = {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}
            total[source] = float(loss.sum_batch(model, params, batch)[objective.name])
            targets[source] = float(batch["label_weights"].sum())
            np.testing.assert_allclose(
                scores[f"{part}/loss/{source}"], total[source] / targets[source], rtol=1e-5
            )
        mean = sum(total.values()) / sum(targets.values())
        np.testing.assert_allclose(scores[f"{part}/loss"], mean, rtol=1e-5)
        np.testing.assert_allclose(scores[f"{part}/perplexity"], np.exp(mean), rtol=1e-4)
        assert scores[f"{part}/targets"] == sum(targets.values())
        assert scores[f"{part}/rows"] == stream.num_rows
        whole += {"masked": 0.25, "causal": 0.75}[part] * mean
    np.testing.assert_allclose(scores["loss"], whole, rtol=1e-5)
    by_source = 0.25 * scores["masked/loss/long"] + 0.75 * scores["causal/loss/long"]
    np.testing.assert_allclose(scores["loss/long"], by_source, rtol=1e-6)
    # The verb prints the same numbers.
    assert main(["evaluate", "--workdir", str(workdir), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(
        [found[name] for name in scores], [scores[name] for name in scores], rtol=1e-6
    )


def test_predictions_in_gaps_are_of_the_first_part_with_gaps(trained):
    lines = (trained[1] / "samples.jsonl").read_text().splitlines()
    samples = json.loads(lines[-1])["samples"]
    assert len(samples) == 2 and all(sample["gaps"] for sample in samples)


def test_the_verbs_show_a_mixture(trained, capsys):
    path, workdir = trained
    assert main(["inspect", str(path), "--batches", "4"]) == 0
    shown = capsys.readouterr().out
    assert "masked: masked_next_token" in shown and "causal: causal_lm" in shown
    assert main(["inspect", str(path), "--batches", "4", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] and list(report["parts"]) == ["masked", "causal"]
    assert main(["describe", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "MaskedNextToken" in shown and "share" in shown
    assert main(["describe", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tokens_per_step"] == 8 * 12 + 24 * 10 and facts["flops_per_step"] > 0
    exported = workdir.parent / "exported"
    assert main(["export", "--workdir", str(workdir), "--output", str(exported)]) == 0
    card = (exported / "README.md").read_text()
    assert "masked (0.25 of the rows): masked tokens, each predicted at the position before" in card
    assert "| `masked/loss/long` |" in card
    assert json.loads((exported / "config.json").read_text())["model_type"] == "gpt2"


def test_the_hybrid_continues_texts_and_says_that_it_fills_no_masks(trained, tmp_path, capsys):
    words = ["predict", "--workdir", str(trained[1]), "--length", "2", "--allow-random-head"]
    assert main([*words, "the dog"]) == 0
    capsys.readouterr()
    assert main([*words, "the <mask>"]) == 2
    assert "continues texts and fills no <mask>" in capsys.readouterr().err
    task = tmp_path / "task.jsonl"
    task.write_text(json.dumps({"context": "the", "choices": ["dog", "fox"], "answer": 0}) + "\n")
    assert main(["evaluate", "--workdir", str(trained[1]), "--task", str(task), "--json"]) == 0


# ---- configurations ----------------------------------------------------------


def test_keys_name_a_part(hybrid):
    changed = override_run(
        hybrid,
        ["data.objective.parts.causal.objective.length=8", "data.objective.parts.masked.share=3"],
    )
    masked, causal = changed.data.objective.parts
    assert causal.objective.length == 8 and masked.share == 3.0 and causal.share == 3.0
    assert changed == override_run(changed, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.objective.parts.causl.share=2"], "did you mean 'causal'"),
        (["data.objective.parts.causal=2"], "is a section: set one of its fields"),
        (["data.objective.parts.causal.share=-2"], "causal: share=-2.0; it must be above 0"),
        (["data.objective.parts.causal.shape=2"], "did you mean 'share'"),
        (["data.objective.parts=2"], "is not a tuple of MixedParts"),
        (["data.objective=mixed"], "at least two parts"),
        (["data.batch_size=30"], "masked 7.5, causal 22.5 rows"),
        (["evaluate.metrics=accuracy"], "of a mixture of objectives"),
        (["data.objective.parts.causal.objective=MaskedLm"], "trained by CausalLm or"),
        (["data.objective.parts.causal.objective.order=lanes"], "causal: order=lanes"),
    ],
)
def test_invalid_mixtures_are_refused(hybrid, words, message):
    with pytest.raises(ConfigError, match=message):
        validate_run(override_run(hybrid, words))


def test_each_part_divides_over_devices_and_microbatches(hybrid):
    mesh = make_mesh(Mesh(8, 1, 1), jax.devices())
    check_batch(hybrid, mesh)
    more = override_run(hybrid, ["train.microbatches=2"])
    with pytest.raises(ConfigError, match="gives the part masked 8 rows, which do not divide"):
        check_batch(more, mesh)


def test_the_denoisers_of_ul2_are_those_of_table_1():
    """Seven, equally often; R short spans and few, S one at the end, X the others (Tay et al. 2022,
    section 3.1), in shorter rows.
    """
    run = load("ul2_mini")
    found = {part.name: part.objective for part in run.data.objective.parts}
    assert set(run.data.objective.count_part_rows(run.data.batch_size).values()) == {2}
    by_mode = {"[NLU]": set(), "[S2S]": set(), "[NLG]": set()}
    for one in found.values():
        by_mode[one.mode].add((one.mean_span, one.noise_density))
        assert one.axis_sizes()["L"] == 128
    assert by_mode["[NLU]"] == {(3, 0.15), (8, 0.15)}
    assert by_mode["[NLG]"] == {(3, 0.5), (8, 0.5), (16, 0.15), (16, 0.5)}
    assert found["s"].num_spans == 1 and found["s"].num_noise_tokens == round(
        found["s"].raw_length / 4
    )
