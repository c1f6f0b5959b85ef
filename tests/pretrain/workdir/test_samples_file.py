"""The samples of a run are its model's predictions at gaps in texts of the held-out part."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from data.inspection import gaps
from data.objectives import OBJECTIVES
from data.pipeline import Stream
from data.store.reader import Store
from pretrain.config import Evaluate, Mesh
from pretrain.mesh.sharding import make_mesh
from pretrain.training.gap_samples import make_sampler
from pretrain.training.program import make_program
from pretrain.workdir import samples_file


@pytest.fixture
def open_run_of(runs, stores):
    """Return opened(name, store, rows): a tiny run with samples of so many rows of a store, and its
    held-out part.
    """

    def open_run(name, store, rows):
        run, store = runs[name], Store.open(stores[store].path)
        data = dataclasses.replace(run.data, store=str(store.path), batch_size=8)
        run = dataclasses.replace(
            run,
            model=dataclasses.replace(run.model, vocab=256),
            data=data,
            evaluate=Evaluate(samples=rows),
        )
        return run, Stream(store, run.data, split="heldout")

    return open_run


def restore_pieces(name, rows, b, vocabulary):
    """Return the tokens of a row before its gaps were made, without special tokens."""
    if name == "t5":
        spans, at = {}, None
        for piece in rows["labels"][b].tolist():
            at = piece if piece in vocabulary.sentinels else at
            spans.setdefault(at, []).append(piece)
        ids = [
            one
            for piece in rows["encoder_token_ids"][b].tolist()
            for one in spans.get(piece, [piece])
        ]
        return [piece for piece in ids if gaps.is_text(vocabulary, piece)]
    tokens_L = rows["token_ids"][b].copy()
    if name == "bert":
        gaps_P = rows["label_weights"][b] > 0
        tokens_L[rows["masked_positions"][b][gaps_P]] = rows["labels"][b][gaps_P]
    return [
        piece for piece in tokens_L.tolist() if name == "gpt3" or gaps.is_text(vocabulary, piece)
    ]


@pytest.mark.parametrize(("name", "store"), [("bert", "bert"), ("t5", "t5"), ("gpt3", "t5")])
def test_closed_gaps_give_the_held_out_text(open_run_of, name, store):
    run, heldout = open_run_of(name, store, 5)
    vocabulary, rows = heldout.vocabulary, heldout.build_evaluation_rows(np.arange(5) * 3)
    for b in range(5):
        gapped = gaps.READERS[run.data.objective.gaps](
            {key: value[b] for key, value in rows.items()}, vocabulary
        )
        ids = restore_pieces(name, rows, b, vocabulary)
        assert (
            gapped.gaps
            and gapped.ids[: len(ids)] == ids[: len(gapped.ids)]
            and len(gapped.ids) > len(ids) / 2
        )
        assert all(
            gapped.ids[at : at + end - begin] == rows["labels"][b][begin:end].tolist()
            for at, begin, end in gapped.gaps
        )
        right_T = rows["labels"][b]
        found = gaps.describe_gaps(vocabulary, gapped, right_T, np.full(len(right_T), 0.5))
        closed = "".join(
            text + gap
            for text, gap in zip(
                found["text"], [*(gap["target"] for gap in found["gaps"]), ""], strict=True
            )
        )
        assert closed.replace("␣", " ").split() == vocabulary.decode(gapped.ids).split()
        assert all(gap["prediction"] == gap["target"] for gap in found["gaps"])
        assert [gap["probability"] for gap in found["gaps"]] == [
            round(0.5 ** (end - begin), 4) for _, begin, end in gapped.gaps
        ]


def test_a_word_is_shown_as_it_reads_in_its_place(stores):
    vocabulary = Store.open(stores["bert"].path).vocabulary
    fox, walks = vocabulary.encode("fox"), vocabulary.encode("walks")
    assert (
        gaps.decode_continuation(vocabulary, [], fox) == "fox"
        and gaps.decode_continuation(vocabulary, walks, fox) == " fox"
    )
    assert (
        gaps.decode_continuation(vocabulary, walks[:1], walks[1:])
        == "walks"[len(vocabulary.decode(walks[:1])) :]
    )
    assert (
        gaps.decode_continuation(vocabulary, fox, [vocabulary.pad]).strip()
        == vocabulary.pieces[vocabulary.pad]
    )


def test_a_row_that_is_too_long_ends_before_a_gap_that_is_not_shown(stores):
    vocabulary = Store.open(stores["bert"].path).vocabulary
    piece = int(np.flatnonzero(vocabulary.starts_word & ~vocabulary.special)[0])
    row = {
        "token_ids": np.full(200, piece),
        "masked_positions": np.arange(2, 62, 5),
        "label_weights": np.ones(12),
        "labels": np.full(12, piece),
    }
    gapped = gaps.find_masks(row, vocabulary)
    assert gapped.gaps == [(2 + 5 * t, t, t + 1) for t in range(8)] and len(gapped.ids) == 42
    row["masked_positions"], row["label_weights"] = (
        np.array([60, 63, 64, 0]),
        np.array([1, 1, 1, 0]),
    )
    row["labels"] = row["labels"][:4]
    gapped = gaps.find_masks(row, vocabulary)
    assert gapped.gaps == [(60, 0, 1), (63, 1, 2)] and len(gapped.ids) == gaps.MAX_PIECES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "store", "mesh"), [("bert_pairs", "bert", Mesh(2, 4, 1)), ("t5", "t5", Mesh(1, 1, 8))]
)
def test_reported_predictions_are_the_models_own(open_run_of, name, store, mesh, tmp_path):
    run, heldout = open_run_of(name, store, 3)
    mesh = make_mesh(mesh)
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        sampler = make_sampler(run, program, mesh, heldout, tmp_path)
        params = jax.tree.map(lambda leaf: 3 * leaf, program.init().params)
        sampler(params, 5)
    rows, params = (
        heldout.build_evaluation_rows(np.arange(3) * heldout.num_rows // 3),
        jax.device_get(params),
    )

    @jax.jit
    def compute_logits(params, rows):
        y = program.loss.compute_states(program.model, params, rows)
        y = y[0] if name == "bert_pairs" else y
        return program.model.apply({"params": params}, y, method="compute_logits")

    logits_BTV = compute_logits(params, rows)
    chance_BTV = np.asarray(jax.nn.softmax(logits_BTV))[..., : heldout.vocabulary.size]
    (line,) = samples_file.read_samples(tmp_path / samples_file.NAME)
    assert line["step"] == 5 and len(line["samples"]) == 3
    for b, sample in enumerate(line["samples"]):
        gapped = sampler.gapped_rows[b]
        assert len(sample["gaps"]) == len(gapped.gaps) > 0
        for gap, (at, begin, end) in zip(sample["gaps"], gapped.gaps):
            assert gap["prediction"] == gaps.decode_continuation(
                heldout.vocabulary,
                gapped.ids[:at],
                chance_BTV[b, begin:end].argmax(axis=-1).tolist(),
            )
            assert gap["probability"] == pytest.approx(
                chance_BTV[b, begin:end].max(axis=-1).prod(), abs=3e-4
            )
    assert (
        make_sampler(
            dataclasses.replace(run, evaluate=Evaluate(samples=0)), program, mesh, heldout, tmp_path
        )
        is None
    )
    used = {objective.gaps for objective in OBJECTIVES.values()}
    assert used == {*gaps.READERS, ""}


def test_the_file_drops_repeated_steps_and_is_bounded(tmp_path):
    path = tmp_path / samples_file.NAME

    def make_line(step, word="fox"):
        gap = {"target": "dog", "prediction": word, "probability": 0.5}
        return {"step": step, "samples": [{"text": ["a", "b\u2028"], "gaps": [gap]}]}

    assert samples_file.read_samples(path) == []
    for step in (10, 20, 30):
        samples_file.add_samples(path, make_line(step))
    samples_file.add_samples(path, make_line(20, "dog"))
    assert samples_file.read_samples(path) == [make_line(10), make_line(20, "dog")] and [
        one.name for one in tmp_path.iterdir()
    ] == [samples_file.NAME]
    for step in range(30, 1500, 10):
        samples_file.add_samples(path, make_line(step))
    steps = [one["step"] for one in samples_file.read_samples(path)]
    assert (
        len(steps) <= samples_file.MAX_LINES
        and steps[0] == 10
        and steps[-1] == 1490
        and max(np.diff(steps)) <= 40
    )


def test_the_keys_of_older_files_are_read(tmp_path):
    path = tmp_path / samples_file.NAME
    older = {"right": "dog", "told": "fox", "probability": 0.5}
    path.write_text(
        json.dumps({"step": 1, "samples": [{"text": ["a", ""], "gaps": [older]}]}) + "\n"
    )
    newer = {"target": "dog", "prediction": "cat", "probability": 0.25}
    samples_file.add_samples(path, {"step": 2, "samples": [{"text": ["a", ""], "gaps": [newer]}]})
    rows = samples_file.group_by_row(samples_file.read_samples(path))["rows"]
    assert rows == [
        {"text": ["a", ""], "targets": ["dog"], "predictions": [[["fox", 0.5]], [["cat", 0.25]]]}
    ]


def test_samples_of_different_rows_are_separate():
    gap = lambda target, predicted: {"target": target, "prediction": predicted, "probability": 0.5}  # noqa: E731
    lines = [
        {"step": 1, "samples": [{"text": ["a", ""], "gaps": [gap("x", "y")]}, {"text": ["b", ""], "gaps": [gap("x", "x")]}]},
        {"step": 2, "samples": [{"text": ["a", ""], "gaps": [gap("x", "x")]}]},
    ]  # fmt: skip
    found = samples_file.group_by_row(json.loads(json.dumps(lines)))
    assert found == {
        "steps": [1, 2],
        "rows": [
            {"text": ["a", ""], "targets": ["x"], "predictions": [[["y", 0.5]], [["x", 0.5]]]},
            {"text": ["b", ""], "targets": ["x"], "predictions": [[["x", 0.5]], None]},
        ],
    }
