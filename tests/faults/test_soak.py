"""Row 21, for the board: ten faults in one run, by a schedule that a seed draws; it ends as the run
that nobody disturbed.

`python -m benchmarks.reliability.torture` tortures runs in the same way for hours, with more kinds of faults.
"""

import pytest

from benchmarks.reliability.torture_faults import befall_run
from benchmarks.reliability.torture_run import TorturedRun
from benchmarks.reliability.torture_schedule import BATCH_SIZE, DEVICES, STEPS, draw_soak
from benchmarks.reliability.torture_verdict import read_fingerprints, read_untimed_rows
from pretrain.workdir import goodput


@pytest.fixture(scope="module")
def undisturbed(whole, configured, tmp_path_factory):
    disk = tmp_path_factory.mktemp("undisturbed")
    run = TorturedRun(configured("bert")[0], disk, disk / "notes")
    run.finish_run(DEVICES, BATCH_SIZE)
    return run.workdir


@pytest.mark.held_by(1)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ten_faults_end_with_the_same_bits(
    undisturbed, configured, small_disk, tmp_path, record_property, seed
):
    run = TorturedRun(configured("bert")[0], small_disk("24m"), tmp_path / "notes")
    for fault in draw_soak(seed).faults:
        befall_run(run, fault)
    run.finish_run(DEVICES, BATCH_SIZE)
    assert sum(run.counts.values()) == 10, run.history
    rows = read_untimed_rows(run.workdir)
    assert rows == read_untimed_rows(undisturbed) and len(rows) == STEPS
    assert read_fingerprints(run.workdir, STEPS) == read_fingerprints(undisturbed, STEPS)
    seconds = goodput.read_ledger(run.workdir / goodput.NAME)["seconds"]
    record_property("faults", sum(run.counts.values()))
    record_property("ended with the same bits", 1)
    record_property(
        f"goodput of schedule {seed} in %",
        round(100 * seconds["step"] / (sum(seconds.values()) - seconds["down"]), 1),
    )
    record_property(f"lost of schedule {seed} in s", round(seconds["lost"], 1))
