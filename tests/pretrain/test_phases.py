"""The phases of a run: what the words of a command make of them, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest

from data.config import Data
from data.objectives import MaskedLm
from data.pipeline import Stream
from data.rows.ramp import BatchRamp, Ramp
from pretrain.__main__ import main
from pretrain.cli.describe import describe_run
from pretrain.config import Phase, Run, Train, from_json, load, override_run, to_json
from pretrain.phases import find_phase, get_run_at, open_streams, resolve_phases
from pretrain.settings.overrides import ConfigError
from tests.small_store import write_store

LONG = ["phases.long.tokens=6e4", "phases.long.data.objective.length=100"]
WORDS = ["data.batch_size=32", "phases.short.steps=100", *LONG, "phases.short.data.batch_size=64"]


def test_words_make_phases_in_the_order_of_their_first_mention():
    run = load("bert_tiny", WORDS)
    short, long = resolve_phases(run)
    assert (short.name, short.start, short.stop) == ("short", 0, 100)
    # 60,000 tokens are 18.75 steps of 32 rows of 100.
    assert (long.name, long.start, long.stop) == ("long", 100, 119)
    assert (short.rows_before, long.rows_before) == (0, 6_400)
    assert (short.run.data.batch_size, long.run.data.batch_size) == (64, run.data.batch_size)
    assert (short.tokens_per_step, long.tokens_per_step) == (64 * 16, 32 * 100)
    assert (short.run.data.objective.length, long.run.data.objective.length) == (16, 100)
    assert (short.run.train.steps, long.run.train.steps, run.train.steps) == (100, 19, 119)
    assert from_json(to_json(run)) == run


def test_a_run_without_phases_is_one_of_its_own():
    run = load("bert_tiny")
    (phase,) = resolve_phases(run)
    assert phase.run is run and (phase.name, phase.start, phase.stop) == ("", 0, run.train.steps)
    assert get_run_at(run, 5) is run


def test_a_phase_of_a_configuration_takes_further_words_and_the_last_of_a_key_holds():
    phase = Phase("long", steps=5, overrides=("data.batch_size=8", "model.dropout=0.2"))
    run = dataclasses.replace(load("bert_tiny", ["train.stop_at_step=0"]), phases=(phase,))
    words = ["phases.long.data.batch_size=16", "phases.long.tokens=4096", "phases.end.steps=2"]
    long, end = override_run(run, words, report=lambda line: None).phases
    assert long.overrides == ("data.batch_size=16", "model.dropout=0.2")
    assert (long.steps, long.tokens, end.steps) == (0, 4096, 2)
    assert override_run(run, ["phases=()"]).phases == ()


def test_the_phase_in_force_trained_the_checkpoint_of_its_last_step():
    run = load("bert_tiny", WORDS)
    phases = resolve_phases(run)
    assert [find_phase(phases, step).name for step in (0, 99, 100, 118, 500)] == [
        *("short", "short", "long", "long", "long")
    ]
    lengths = [get_run_at(run, step).data.objective.length for step in (0, 1, 100, 101, 119)]
    assert lengths == [16, 16, 16, 100, 100]
    assert get_run_at(run, 101).train.steps == 119 and not get_run_at(run, 101).phases


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("a.data.batch_size=8", "phases.a has no length: set phases.a.steps or phases.a.tokens"),
        ("a.steps=3 a.tokens=9", "phases.a has two lengths"),
        ("a.steps=-3", "phases.a.steps=-3: a phase has a step or more"),
        ("a.stps=3", "phases.a.stps: a phase has no 'stps'; did you mean 'steps'?"),
        ("a.steps=3 a.dta.rates=1", "a phase has no 'dta'; did you mean 'data'?"),
        ("a.steps=3 a.data.objective.lenght=8", "has no 'lenght'; did you mean 'length'?"),
        ("a.steps=3 a.train.seed=1", "phases.a.train.seed: all phases of a run have one train.seed"),
        ("a.steps=3 a.data.store=x", "all phases of a run have one data.store"),
        ("a.steps=3 a.mesh.data=1", "all phases of a run have one mesh.data"),
        ("a.steps=3 a.optimizer=lamb", "all phases of a run have one optimizer"),
        ("a.steps=3 a.model=BertConfig", "all phases of a run have one model"),
        ("a.steps=3 a.data.objective=CausalLm", "phases.a: data.objective: a BertConfig is trained"),
        ("a.steps=3 a.optimizer.learning_rate=x", "phases.a.optimizer.learning_rate: 'x' is not a"),
        ("A.steps=3", "phases.A: the name of a phase has small letters"),
        ("a=3", "phases.a is a phase: set its length, as in phases.a.steps=1000"),
    ],
)  # fmt: skip
def test_what_a_phase_cannot_be_is_one_clear_error(words, message):
    with pytest.raises(ConfigError) as caught:
        load("bert_tiny", [f"phases.{word}" for word in words.split()])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_train_steps_is_the_sum_and_another_number_is_refused_or_reported():
    lines = []
    run = dataclasses.replace(load("bert_tiny"), train=Train(steps=7))
    assert override_run(run, WORDS, lines.append).train.steps == 119
    assert lines == ["train.steps=119 is the sum of the phases (short 100, long 19), not 7"]
    assert override_run(run, [*WORDS, "train.steps=119"], lines.append).train.steps == 119
    with pytest.raises(ConfigError, match="train.steps=9: the phases have 119 steps together"):
        load("bert_tiny", [*WORDS, "train.steps=9"])


def test_two_phases_of_one_name_are_refused():
    run = dataclasses.replace(load("bert_tiny"), phases=(Phase("a", 1), Phase("a", 2)))
    with pytest.raises(ConfigError, match="two are called a"):
        resolve_phases(run)


# ---- rows --------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(stores, tmp_path_factory):
    """Return a store of two sources of short documents, whose first words tell them apart."""
    vocabulary = stores["bert"].vocabulary
    documents = [[[5 + i % 30, 5 + i // 30 % 30, 6, 7]] for i in range(300)]
    folder = tmp_path_factory.mktemp("phases") / "store"
    sources = {"a": documents[:200], "b": documents[200:]}
    return write_store(folder, vocabulary, sources, heldout=documents[:4])


def make_run(store, *phases, **data):
    objective = MaskedLm(length=16, max_predictions=2, rows="documents")
    settings = Data(store=str(store.path), objective=objective, batch_size=8, **data)
    return Run(model=load("bert_tiny").model, data=settings, phases=phases)


def read_rows(stream: Stream, phase):
    """Return the numbers of the rows of a phase, step by step."""
    count = phase.run.data.batch_size
    return [stream.draw_keys(stream.locate_rows(step) + np.arange(count))[0] for step in range(phase.start, phase.stop)]  # fmt: skip


def test_rows_that_were_read_are_not_read_again(store):
    """Batches of 8 rows of 16 tokens, then of 12 rows of 8 tokens, then of 5: each row once."""
    run = make_run(
        store,
        Phase("short", steps=7),
        Phase("long", tokens=12 * 8 * 9, overrides=("data.batch_size=12", "data.objective.length=8")),
        Phase("end", steps=27, overrides=("data.batch_size=5",)),
    )  # fmt: skip
    phases = resolve_phases(run)
    streams = open_streams(store, phases, "train")
    rows = np.concatenate([row for pair in zip(streams, phases) for row in read_rows(*pair)])
    assert len(rows) == 7 * 8 + 9 * 12 + 27 * 5 == 299
    counts = np.bincount(rows, minlength=300)
    assert counts.max() == 1
    assert [phase.rows_before for phase in phases] == [0, 56, 164]
    # The batches hold these rows.
    ids = streams[1].build_batch(phases[1].start)["token_ids"]
    assert ids.shape == (12, 8)


def test_each_source_goes_on_with_its_next_row_where_the_rates_change(store):
    """200 rows of source a and 100 of b: rates 1 : 1, then 9 : 1, and back."""
    run = make_run(
        store,
        Phase("even", steps=10),
        Phase("uneven", steps=10, overrides=("data.rates=0.9,0.1",)),
        Phase("again", steps=6),
        rates=(0.5, 0.5),
    )
    phases = resolve_phases(run)
    streams = open_streams(store, phases, "train")
    rows = [np.concatenate(read_rows(*pair)) for pair in zip(streams, phases)]
    read = np.concatenate(rows)
    assert np.bincount(read).max() == 1
    assert abs((rows[0] < 200).mean() - 0.5) < 0.03 and abs((rows[1] < 200).mean() - 0.9) < 0.03
    first = np.concatenate([part[part < 200] for part in rows])  # in the order of source a alone
    alone = Stream(store, dataclasses.replace(run.data, rates=(1.0, 0.0)))
    assert (first == alone.draw_keys(np.arange(len(first)))[0]).all()


def test_stairs_read_each_row_once_at_the_temperature_of_their_step(store):
    """Source a has 200 rows and b 100: shares 2 : 1, which a temperature of 0 makes 1 : 1."""
    batch = {"batch_ramp": BatchRamp(2, steps=12)}
    run = make_run(store, **batch, temperature_ramp=Ramp(0.0, 0, 24), rates=(2.0, 1.0))
    run = dataclasses.replace(run, train=Train(steps=36))
    phases = resolve_phases(run)
    streams = open_streams(store, phases, "train")
    read = np.concatenate([row for pair in zip(streams, phases) for row in read_rows(*pair)])
    assert len(read) == 4 * (2 + 4 + 6) + 24 * 8 == phases[-1].rows_before + phases[-1].rows
    assert np.bincount(read).max() == 1
    a, b = (read < 200).sum(), (read >= 200).sum()
    shares = [
        0.5 + (2**t / (1 + 2**t) - 0.5) for t in (phase.run.data.temperature for phase in phases)
    ]
    expected = sum(share * phase.rows for share, phase in zip(shares, phases))
    assert abs(a - expected) < 3 and abs(a - b * 2) > 8
    # All stairs share the rows that are open, and each batch has the rows of its step.
    assert len({id(stream.table) for stream in streams}) == 1
    assert streams[-1].build_batch(35)["token_ids"].shape == (8, 16)


def test_a_mask_ramp_of_a_phase_counts_the_steps_of_the_phase(store):
    """Of the 4 tokens of each row 3 are masked at the first step of the phase, 1 from the fifth."""
    words = (
        "max_predictions=10",
        "mask_ramp.start=0.75",
        "mask_ramp.last_step=4",
        "mask_rate=0.25",
    )
    words = tuple(f"data.objective.{word}" for word in words)
    run = make_run(store, Phase("a", steps=3), Phase("b", steps=6, overrides=words))
    phase = resolve_phases(run)[1]
    stream = open_streams(store, resolve_phases(run), "train")[1]
    batches = [stream.build_batch(step) for step in range(phase.start, phase.stop)]
    masked = [set(batch["label_weights"].sum(axis=1)) for batch in batches]
    rates = np.array([0.75, 0.625, 0.5, 0.375, 0.25, 0.25])
    assert masked == [{count} for count in np.rint(4 * rates)]


def test_describe_prints_a_table_of_phases(capsys):
    assert main(["describe", "bert_tiny", *WORDS, "train.stop_at_step=110"]) == 0
    printed = capsys.readouterr().out
    table = [line.split() for line in printed.splitlines() if line.startswith(("  short ", "  long "))]  # fmt: skip
    assert table[0][:6] == ["short", "1", "100", "1,024", "6,400", "102,400"]
    assert table[1][:6] == ["long", "101", "10", "3,200", "320", "32,000"]
    assert table[1][-1] == "data.objective.length=100"
    assert f"{102_400 + 32_000:,}" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("phases.long.model.depth=1", "phases.long: params/.* a phase cannot change their shapes"),
        ("phases.long.model.width=64", "phases.long: params/.* a phase cannot change their shapes"),
        ("phases.long.data.objective.length=512", "phases.long: rows of 512 tokens are longer"),
        (
            "phases.long.optimizer.scale_by_param_rms=true",
            "phases.long: optimizer/.* cannot change",
        ),
    ],
)
def test_describe_refuses_what_train_refuses(words, message):
    with pytest.raises(ConfigError, match=message):
        describe_run(load("bert_tiny", [*WORDS, words]))


def test_inspect_shows_the_batch_of_the_phase_of_a_step(store, tmp_path, capsys):
    run = make_run(store, Phase("a", steps=4), Phase("b", steps=4, overrides=("data.batch_size=5",)))  # fmt: skip
    run = override_run(run, [])
    (tmp_path / "run.json").write_text(to_json(run))
    words = ["inspect", str(tmp_path / "run.json"), "--json", "--rows", "2", "--batches", "1"]
    shown = {}
    for step in ("3", "4", "5"):
        main([*words, "--step", step])
        shown[step] = json.loads(capsys.readouterr().out)
    assert [shown[step]["phase"] for step in shown] == ["a", "b", "b"]
    a, b = resolve_phases(run)
    numbers = open_streams(store, [a, b], "train")[1].draw_keys(np.arange(32, 42))[0]
    assert [row["row"] for row in shown["4"]["rows"]] == [*numbers[:2]]
    assert [row["row"] for row in shown["5"]["rows"]] == [*numbers[5:7]]
