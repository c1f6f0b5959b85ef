"""Ramps of the batch and of the temperature: stairs by closed form, where ramps count, errors."""

import dataclasses
import math

import numpy as np
import pytest

from data.config import Data
from data.mixed import count_positions
from data.objectives import MaskedLm
from data.rows.ramp import BatchRamp, Ramp
from pretrain.__main__ import main
from pretrain.config import from_json, load, to_json
from pretrain.phases import get_run_at, resolve_phases
from pretrain.run import list_ramps
from pretrain.settings.overrides import ConfigError
from pretrain.stairs import list_stairs

BATCH = "data.batch_size=64 data.batch_ramp.start=16"


def load_words(words):
    return load("bert_tiny", words.split())


def list_sizes(stairs):
    """Return the size of the batch of each step."""
    return [stair.data.batch_size for stair in stairs for _ in range(stair.steps)]


def walk_tokens(sizes, tokens, per_row, steps):
    """Return the size of each step by ModernBERT's rule, read token by token as they go.

    `sizes` are the sizes before the last. A step has the first size whose share of the tokens has
    not been read, and the last size from `tokens` on.
    """
    ends, found, read = np.ceil(tokens / sum(sizes) * np.cumsum(sizes)), [], 0
    for _ in range(steps):
        size = next((size for size, end in zip(sizes, ends) if read < end), sizes[-1] + 1)
        found.append(size if read < tokens else sizes[-1] + 1)
        read += found[-1] * per_row
    return found


@pytest.mark.parametrize("first", [1, 3, 24])
@pytest.mark.parametrize("tokens", [500, 9_999, 60_000])
def test_sizes_follow_the_warm_up_of_modernbert(first, tokens):
    """As theirs, by one row from each size to the next."""
    data = Data(objective=MaskedLm(length=16), batch_size=40)
    data = dataclasses.replace(data, batch_ramp=BatchRamp(first, tokens=tokens, rise=1))
    stairs = list_stairs(data, 0, 400, 0)
    assert list_sizes(stairs) == walk_tokens([*range(first, 40)], tokens, 16, 400)
    assert {count_positions(stair.data.objective, 1) for stair in stairs} == {16}


def test_a_ramp_over_steps_gives_each_size_as_many():
    run = load_words(f"{BATCH} data.batch_ramp.steps=100 train.steps=130")
    phases = resolve_phases(run)
    assert [(phase.start, phase.stop, phase.run.data.batch_size) for phase in phases] == [
        *((0, 34, 16), (34, 67, 32), (67, 100, 48), (100, 130, 64))
    ]
    assert [phase.rows_before for phase in phases] == [0, 544, 1600, 3184]
    # The schedule spans the run, and what is resolved has no ramp of the batch.
    assert {(phase.name, phase.begin, phase.run.train.steps) for phase in phases} == {("", 0, 130)}
    assert {phase.run.data.batch_ramp for phase in phases} == {BatchRamp()}
    assert from_json(to_json(run)) == run
    sizes = [get_run_at(run, step).data.batch_size for step in (1, 34, 35, 101, 130)]
    assert sizes == [16, 16, 32, 64, 64]


def test_ettins_smallest_encoder_rises_over_125_billion_tokens():
    words = "data.batch_ramp.start=144 data.batch_ramp.tokens=125e9"
    phases = resolve_phases(load("ettin_17m", words.split()))
    assert [phase.run.data.batch_size for phase in phases] == [*range(144, 4609, 144)]
    read = sum(phase.steps * phase.tokens_per_step for phase in phases[:-1])
    assert 0 <= read - 125e9 < 4608 * 1024
    # As many steps each, to a few: at most one more step, which the rounding of the sizes leaves.
    steps = {phase.steps for phase in phases[:-1]}
    assert max(steps) - min(steps) <= 8


def test_a_phase_in_tokens_ends_after_its_tokens_whatever_its_batches():
    run = load_words(f"{BATCH} data.batch_ramp.steps=9 phases.a.tokens=20000 phases.b.steps=5")
    phases = resolve_phases(run)
    reads = [phase.steps * phase.tokens_per_step for phase in phases if phase.name == "a"]
    assert 20_000 <= sum(reads) < 20_000 + 64 * 16 and len(reads) == 4
    assert run.train.steps == phases[-1].stop == sum(phase.steps for phase in phases)
    assert phases[-1].rows_before == sum(reads) // 16


def test_the_temperature_has_sixteen_stairs_that_begin_at_the_value_of_their_step():
    words = "data.temperature=0.3 data.temperature_ramp.start=0.7"
    run = load_words(
        f"{words} data.temperature_ramp.first_step=10 data.temperature_ramp.last_step=110"
    )
    phases = resolve_phases(run)
    assert [phase.start for phase in phases] == [
        0,
        *(10 + math.ceil(i * 6.25) for i in range(1, 17)),
    ]
    for phase in phases:
        over = min(max(phase.start - 10, 0) / 100, 1)
        assert phase.run.data.temperature == pytest.approx(0.7 - 0.4 * over)
    assert phases[-1].run.data.temperature == 0.3 and phases[-1].changes == ()


# ---- where ramps count from --------------------------------------------------

PHASES = "phases.a.steps=40 phases.b.steps=60"


def list_temperatures(run):
    return [phase.run.data.temperature for phase in resolve_phases(run) for _ in range(phase.steps)]


@pytest.mark.parametrize("ramp", ["data.objective.mask_ramp", "optimizer.weight_decay_ramp"])
def test_a_runs_ramp_counts_all_steps_and_a_phases_own_ramp_its_steps(ramp):
    def find_ramps(words):
        runs = [phase.run for phase in resolve_phases(load_words(f"{PHASES} {words}"))]
        return [list_ramps(run).get(ramp, Ramp()) for run in runs]

    of_run = find_ramps(f"{ramp}.start=0.14 {ramp}.first_step=20 {ramp}.last_step=90")
    assert of_run == [Ramp(0.14, 20, 90)] * 2
    own = f"phases.b.{ramp}"
    a, b = find_ramps(f"{own}.start=0.14 {own}.first_step=10 {own}.last_step=50")
    assert b == Ramp(0.14, 50, 90)
    # The optimizer's state passes on, so the weight decay of a has steps, too, and one value.
    assert a == (Ramp() if ramp.startswith("data") else Ramp(0.01, 0, 1))


def test_a_temperature_counts_as_other_ramps_do():
    ramp = "data.temperature=0.5 data.temperature_ramp.start=1 data.temperature_ramp.last_step=80"
    found = list_temperatures(load_words(f"{PHASES} {ramp}"))
    np.testing.assert_allclose(found[:80:5], 1 - np.arange(16) / 32)
    assert found[80:] == [0.5] * 20
    words = "phases.b.data.temperature_ramp.start=1 phases.b.data.temperature_ramp.last_step=32"
    found = list_temperatures(load_words(f"{PHASES} data.temperature=0.5 {words}"))
    assert found[:40] == [0.5] * 40 and found[72:] == [0.5] * 28
    np.testing.assert_allclose(found[40:72:2], 1 - np.arange(16) / 32)


def test_the_batch_rises_in_the_first_phase_or_in_the_phase_that_says_so():
    run = load_words(f"{PHASES} {BATCH} data.batch_ramp.steps=30")
    sizes = [(phase.name, phase.run.data.batch_size) for phase in resolve_phases(run)]
    assert sizes == [("a", 16), ("a", 32), ("a", 48), ("a", 64), ("b", 64)]
    words = "phases.b.data.batch_ramp.start=16 phases.b.data.batch_ramp.steps=30"
    sizes = resolve_phases(load_words(f"{PHASES} data.batch_size=48 {words}"))
    found = [(phase.name, phase.run.data.batch_size) for phase in sizes]
    assert found == [("a", 48), ("b", 16), ("b", 32), ("b", 48)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data.batch_ramp.steps=9", "data.batch_ramp needs its first size: set data.batch_ramp.start"),
        (BATCH, "data.batch_ramp needs one length: set either data.batch_ramp.steps or"),
        (f"{BATCH} data.batch_ramp.steps=9 data.batch_ramp.tokens=9", "needs one length"),
        (f"{BATCH} data.batch_ramp.steps=-9", "data.batch_ramp.steps=-9: 0 or more"),
        (f"{BATCH} data.batch_ramp.steps=9 data.batch_ramp.start=64", "begins with a row or more, below"),
        (f"{BATCH} data.batch_ramp.steps=9 data.batch_ramp.start=0", "begins with a row or more, below"),
        (f"{BATCH} data.batch_ramp.steps=9 data.batch_ramp.rise=20", "set data.batch_ramp.rise to a divisor of 48"),
        (f"{BATCH} data.batch_ramp.steps=99 data.batch_ramp.start=4096 data.batch_size=8192 data.batch_ramp.rise=1", "at most 256"),
        (f"{BATCH} data.batch_ramp.steps=9000", "data.batch_ramp ends after 9,000 of 1,500 steps"),
        (f"{PHASES} {BATCH} data.batch_ramp.steps=50", "phases.a: data.batch_ramp ends after 50 of 40 steps"),
        (f"phases.a.tokens=3000 {BATCH} data.batch_ramp.tokens=9000", "phases.a: data.batch_ramp ends after 9,2"),
        ("data.temperature_ramp.last_step=9", "a ramp to step 9 needs a start"),
        ("data.temperature_ramp.start=0.5", "ends before it begins"),
        ("data.temperature_ramp.start=0.5 data.temperature_ramp.last_step=2000", "data.temperature_ramp.last_step=2,000 is beyond the end, step 1,500"),
        ("data.objective.mask_ramp.start=0.14 data.objective.mask_ramp.last_step=2000", "mask_ramp.last_step=2,000 is beyond the end, step 1,500"),
        ("optimizer.weight_decay_ramp.start=0.14 optimizer.weight_decay_ramp.last_step=2000", "weight_decay_ramp.last_step=2,000 is beyond the end"),
        (f"{PHASES} phases.b.data.temperature_ramp.start=1 phases.b.data.temperature_ramp.last_step=61", "phases.b: data.temperature_ramp.last_step=61 is beyond the end, step 60"),
        (f"{PHASES} data.temperature_ramp.start=1 data.temperature_ramp.last_step=101", "data.temperature_ramp.last_step=101 is beyond the end, step 100"),
    ],
)  # fmt: skip
def test_a_ramp_that_cannot_be_is_one_clear_error(words, message):
    with pytest.raises(ConfigError) as caught:
        load_words(words)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_describe_prints_the_stairs(capsys):
    words = f"{BATCH} data.batch_ramp.steps=30 train.stop_at_step=40"
    assert main(["describe", "bert_tiny", *words.split()]) == 0
    printed = capsys.readouterr().out
    table = [line.split() for line in printed.splitlines() if line.startswith("  run ")]
    assert [row[1:5] for row in table] == [
        *(["1", "10", "256", "160"], ["11", "10", "512", "320"]),
        *(["21", "10", "768", "480"], ["31", "10", "1,024", "640"]),
    ]
    assert [row[7:] for row in table] == [[f"data.batch_size={n}"] for n in (16, 32, 48)] + [[]]
    assert f"{1600 * 16:,}" in printed
