"""The speedrun: where a run reaches the target, which runs are records, and what is refused."""

import json
import pathlib
import re
import string

import numpy as np
import pytest

from benchmarks.speedrun import race, race_table
from benchmarks.speedrun.checkpoint_scores import score_run
from benchmarks.speedrun.entries import BASELINE, ENTRIES, TRAINER, Entry, Stage, list_words
from benchmarks.speedrun.heldout_rows import (
    OBJECTIVE,
    STORE,
    check_store,
    open_heldout_rows,
    write_heldout_arrays,
)
from benchmarks.speedrun.race import Attempt, list_marks, read_race, run_race
from benchmarks.speedrun.race_table import (
    Crossing,
    add_log,
    find_crossing,
    format_section,
    group_runs,
    list_records,
    replace_section,
)
from configs import bert_mini, bert_mini_64, bert_mini_fast, bert_mini_modern
from data.vocabulary.load import read_vocabulary
from pretrain.config import load
from pretrain.phases import resolve_phases
from pretrain.training.schedules import make_learning_rate
from tests.small_store import write_store

pytestmark = pytest.mark.fast


def make_run(entry, seed, seconds, date="2026-12-01", processor="AMD", **others):
    """Return (name, log) of a run that reaches 31 % after so many seconds, and 29 % before."""
    scores = [[50, seconds / 2, 0.29, 4.5], [100, seconds, 0.31, 4.4]]
    own = {"steps": 100, "overrides": [], "scores": scores, "command": f"run {entry}"} | others
    log = {"entry": entry, "seed": seed, "date": date, "processor": processor} | own
    return f"{date}_{entry}_{seed}_{processor}", log


def resolve_entry(name):
    """Return the phases of an entry, as a training has them."""
    config, *words = list_words(ENTRIES[name], pathlib.Path("store"), ENTRIES[name].steps, 3, 100)
    return resolve_phases(load(config, words))


# ---- entries -----------------------------------------------------------------


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_trains_its_steps_in_order_and_its_rate_ends_where_it_says(name):
    phases = resolve_entry(name)
    assert phases[-1].stop == ENTRIES[name].steps
    assert phases[0].run.data.objective.length == (64 if name.startswith("modern_long") else 16)
    assert phases[-1].run.data.objective.length == 64
    assert {phase.run.train.seed for phase in phases} == {3}
    assert all(phase.run.model.length >= OBJECTIVE.length for phase in phases)
    last = phases[-1].run.optimizer
    if ENTRIES[name].parameters == "ema":
        assert phases[-1].run.train.ema_decay and last.decay == "constant"
    else:
        assert (last.decay, last.end_lr_ratio, last.warmup_steps) == ("linear", 0.0, 0)


def test_the_baseline_is_bert_mini_and_bert_mini_64_in_one_run():
    short, long = resolve_entry(BASELINE)
    for phase, own in ((short, bert_mini.config()), (long, bert_mini_64.config())):
        assert phase.run.model == own.model
        assert phase.run.data.objective == own.data.objective
        assert phase.run.data.batch_size == own.data.batch_size
    assert (short.stop, long.stop) == (5_000, 7_500)
    whole = make_learning_rate(bert_mini.config().optimizer, 7_500)
    parts = [make_learning_rate(phase.run.optimizer, phase.steps) for phase in (short, long)]
    for step in (1_000, 4_000, 4_999):
        assert float(parts[0](step)) == pytest.approx(float(whole(step)), rel=5e-3)
    for step in (0, 1_000, 2_000):
        assert float(parts[1](step)) == pytest.approx(float(whole(5_000 + step)), rel=5e-3)


def test_the_modern_entry_has_the_shape_and_the_rows_of_its_configuration():
    own = resolve_phases(bert_mini_modern.config())
    for phase, expected in zip(resolve_entry("modern"), own, strict=True):
        assert phase.run.model == expected.run.model
        assert phase.run.data.objective == expected.run.data.objective
        assert phase.run.optimizer.learning_rate == expected.run.optimizer.learning_rate


def test_the_record_is_a_configuration():
    own = resolve_phases(bert_mini_fast.config())
    for phase, expected in zip(resolve_entry("modern_long_deep"), own, strict=True):
        assert phase.run.model == expected.run.model and phase.steps == expected.steps
        assert phase.run.data.objective == expected.run.data.objective
        assert phase.run.data.batch_size == expected.run.data.batch_size
        assert phase.run.optimizer == expected.run.optimizer


def test_a_stage_without_a_step_is_refused():
    entry = Entry("A", "bert_mini", 10, 0.1, (), (Stage("a", 0.9), Stage("b", 0.1)))
    with pytest.raises(ValueError, match="--steps 2: a stage of the entry has no step"):
        list_words(entry, pathlib.Path("store"), 2, 0, 1)


# ---- the measure -------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store whose held-out documents have some hundreds of tokens."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.ascii_lowercase]
    file = tmp_path_factory.mktemp("letters") / "vocab.txt"
    file.write_text("\n".join(pieces) + "\n")
    wordpiece = read_vocabulary(file)
    ids = [i for i in range(wordpiece.size) if not wordpiece.special[i]]
    draws = np.random.default_rng(0)
    documents = [[draws.choice(ids, 40).tolist() for _ in range(20)] for _ in range(2)]
    path = tmp_path_factory.mktemp("speedrun") / "store"
    return write_store(path, wordpiece, documents[:1], heldout=documents[1:])


def test_held_out_rows_hide_15_percent_and_are_the_same_for_a_program_without_jax(store, tmp_path):
    write_heldout_arrays(store, tmp_path / "rows.npz")
    arrays = np.load(tmp_path / "rows.npz")
    batches = list(open_heldout_rows(store).iterate_evaluation_batches())
    for key in ("token_ids", "labels", "masked_positions"):
        np.testing.assert_array_equal(
            arrays[key], np.concatenate([batch[key] for batch in batches])
        )
    full = arrays["label_weights"].sum(axis=1)
    assert full.max() == round(0.15 * 62)
    mask = np.take_along_axis(arrays["token_ids"], arrays["masked_positions"], 1)
    hidden = (mask == store.vocabulary.mask)[arrays["label_weights"] > 0].mean()
    assert 0.7 < hidden < 0.9


def test_another_store_is_refused(store, tmp_path):
    with pytest.raises(ValueError, match="is not the store of the speedrun .* prepare"):
        check_store(store)
    with pytest.raises(ValueError, match="is not the store of the speedrun"):
        run_race(Attempt(BASELINE), store.path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- the clock ---------------------------------------------------------------


def write_run(folder, starts=1, **changes):
    """Write the files of a finished run."""
    workdir = folder / "workdir"
    workdir.mkdir(parents=True)
    seconds = dict.fromkeys(race.goodput.PHASES, 1.0)
    ledger = {"starts": starts, "until": 0.0, "ended": True, "seconds": seconds, "marks": {}}
    (workdir / "goodput.json").write_text(json.dumps(ledger))
    record = {"entry": "muon", "store": STORE, "steps": 100, "marks": [[50, 5.0], [100, 10.0]]}
    (folder / race.NAME).write_text(json.dumps(record | changes))
    return folder


def test_an_interrupted_or_continued_run_is_no_record(tmp_path):
    assert read_race(write_run(tmp_path / "whole"))["steps"] == 100
    (tmp_path / "killed").mkdir()
    with pytest.raises(ValueError, match="interrupted and is no record"):
        read_race(tmp_path / "killed")
    with pytest.raises(ValueError, match="started 2 times"):
        read_race(write_run(tmp_path / "continued", starts=2))
    with pytest.raises(ValueError, match="ended before step 100"):
        read_race(write_run(tmp_path / "stopped", marks=[[50, 5.0]]))
    with pytest.raises(ValueError, match="trained on another store"):
        score_run(write_run(tmp_path / "other", store="0" * 32), tmp_path)


def test_a_run_is_never_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(race, "check_store", lambda store: None)
    monkeypatch.setattr(race.Store, "open", lambda path: None)
    with pytest.raises(ValueError, match="the clock of a run cannot be continued"):
        run_race(Attempt(BASELINE), tmp_path, tmp_path)


def test_marks_are_the_checkpoints_and_the_last_step():
    times = [(0.5 * step, step, step) for step in range(1, 12)]
    assert list_marks(times, 11, 4) == [(4, 2.0), (8, 4.0), (11, 5.5)]


def test_scored_steps_are_not_scored_again(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", parameters="raw")
    (folder / "scores.json").write_text("[[50, 5.0, 0.2, 5.0]]")
    scored = []

    def score_step(step):
        scored.append(step)
        return 0.3, 4.4

    name = "benchmarks.speedrun.checkpoint_scores"
    monkeypatch.setattr(f"{name}.make_cloze_scorer", lambda *_: score_step)
    monkeypatch.setattr(f"{name}.Store.open", lambda path: None)
    expected = [[50, 5.0, 0.2, 5.0], [100, 10.0, 0.3, 4.4]]
    assert score_run(folder, tmp_path) == expected == score_run(folder, tmp_path)
    assert scored == [100]


# ---- the table ---------------------------------------------------------------


def test_the_first_checkpoint_that_reaches_the_target_counts():
    scores = [[10, 1.0, 0.2, 5.0], [20, 2.0, 0.3, 4.5], [30, 3.0, 0.29, 4.6], [40, 4.0, 0.35, 4.0]]
    assert find_crossing(scores) == Crossing(2.0, 20) == find_crossing(scores[::-1])
    assert find_crossing(scores, 0.31) == Crossing(4.0, 40)
    assert find_crossing(scores, 0.36) is None


def test_the_slowest_seed_is_the_time_and_one_seed_is_no_record():
    alone = group_runs([make_run("muon", 0, 300)])
    assert alone[0].seconds is None and not list_records(alone)
    (pair,) = group_runs([make_run("muon", 1, 330), make_run("muon", 0, 300)])
    assert pair.seconds == 330
    missed = [[100, 310, 0.299, 4.5]]
    (failed,) = group_runs([make_run("muon", 0, 300), make_run("muon", 1, 0, scores=missed)])
    assert failed.seconds is None
    again = group_runs([make_run("muon", 0, 300), make_run("muon", 0, 301, date="2026-12-02")])
    assert again[0].seconds is None  # a seed confirms no other run of itself


def test_records_are_those_that_were_faster_than_all_before_on_their_processor():
    runs = [make_run(BASELINE, seed, 1_700) for seed in (0, 1)]
    runs += [make_run("muon", seed, 600, "2026-12-02") for seed in (0, 1)]
    runs += [make_run("modern", seed, 650, "2026-12-03") for seed in (0, 1)]
    runs += [make_run("modern", seed, 900, "2026-12-03", "Xeon") for seed in (0, 1)]
    runs += [make_run(TRAINER, seed, 60, "2026-12-04") for seed in (0, 1)]
    changed = ["model.depth=5"]
    runs += [make_run("modern", seed, 500, "2026-12-05", overrides=changed) for seed in (0, 1)]
    records = [(one.entry, one.processor, one.seconds) for one in list_records(group_runs(runs))]
    assert records == [
        (BASELINE, "AMD", 1_700),
        ("muon", "AMD", 600),
        ("modern", "Xeon", 900),
        ("modern", "AMD", 500),
    ]


def test_the_section_has_the_ratios_the_commands_and_what_missed():
    runs = [make_run(BASELINE, seed, 1_700 + seed) for seed in (0, 1)]
    runs += [make_run(TRAINER, seed, 5_000, "2026-12-02") for seed in (0, 1)]
    runs += [make_run("muon", seed, 400, "2026-12-03") for seed in (0, 1)]
    runs.append(make_run("modern_deep", 0, 700, "2026-12-04"))
    section = format_section(group_runs(runs))
    row = next(line for line in section.splitlines() if line.startswith("| BERT, Muon"))
    assert row.startswith("| BERT, Muon, 100 steps | 6:40, 6:40 | 100 | 4.3 | 12.5 | 2026-12-03 |")
    assert section.index("BERT, Muon") < section.index("BERT, AdamW")
    assert "- `run muon`" in section and "run modern_deep" not in section
    assert re.search(r"8 x 192.*30.0% after 11:40, one seed", section)
    assert re.search(r"Trainer, 100 steps \| 30.0% after 83:20", section)


def test_the_page_has_the_section_of_its_logs():
    page = race_table.PAGE.read_text()
    groups = group_runs(race_table.read_logs())
    assert page == replace_section(page, format_section(groups))
    assert format_section([]) == race_table.NO_RECORD
    for entry in (*ENTRIES, TRAINER):
        assert f"`{entry}`" in page


def test_a_log_replaces_no_other_run(tmp_path, monkeypatch):
    monkeypatch.setattr(race_table, "FOLDER", tmp_path)
    _, log = make_run("muon", 0, 300)
    scores = log.pop("scores")
    path = add_log(log | {"marks": []}, scores, "muon_100_0")
    assert add_log(log, scores, "muon_100_0") == path
    ((name, read),) = race_table.read_logs(tmp_path)
    assert name == "2026-12-01_muon_100_0" and read == log | {"scores": scores}
    with pytest.raises(ValueError, match="is the log of another run"):
        add_log(log | {"seed": 1}, scores, "muon_100_0")


def test_curves_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    groups = group_runs(make_run("muon", seed, 300) for seed in (0, 1))
    race_table.draw_curves(groups, tmp_path / "curves.svg")
    assert "BERT, Muon, 100 steps" in (tmp_path / "curves.svg").read_text()
