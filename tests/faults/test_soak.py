"""Row 21, on the board: a run with ten random faults from a seed ends as the undisturbed run does."""

import random
import signal

import pytest

from pretrain.distributed.watchdog import HUNG
from pretrain.workdir import goodput, metrics_file
from pretrain.workdir.checkpoints import Checkpoints

STEPS, EVERY = 64, 4
TIMED = ("seconds", "tokens_per_second", "wait", "device")
LIMITS = ("watchdog.step=20", "watchdog.data=20", "watchdog.save=20")
# {kind: (moments at which it is injected, exit status of the run)}
KINDS = {
    "kill": (("compile", "data", "step", "save", "finish", "delete", "saved"), -signal.SIGKILL),
    "term": (("compile", "data", "step", "save", "finish", "delete"), 128 + signal.SIGTERM),
    "twice": (("step", "finish"), 128 + signal.SIGTERM),
    "hang": (("data", "step", "save", "finish"), HUNG),
    "full": (("saved",), 2),
    "damage": ((), None),
}
AT_A_SAVE = ("save", "finish", "delete", "saved")


def draw_schedule(seed):
    """Return [(kind, moment, steps after the newest checkpoint)]: a stop, each kind once, and three
    more.
    """
    rng = random.Random(f"soak {seed}")
    kinds = [*KINDS, *rng.choices([kind for kind in KINDS if kind != "damage"], k=3)]
    rng.shuffle(kinds)
    # The first fault comes after two checkpoints, so that the newest may be damaged.
    return [("term", "step", 2 * EVERY + 1)] + [
        (kind, rng.choice(KINDS[kind][0] or ("",)), rng.randint(1, EVERY)) for kind in kinds
    ]


def words_of(configured, workdir):
    steps = (
        f"train.steps={STEPS}",
        f"checkpoint.every={EVERY}",
        "checkpoint.keep=3",
        "evaluate.every=32",
    )
    return ("train", configured("bert")[0], "--workdir", workdir, *steps)


def read_untimed_rows(workdir):
    return [
        {key: value for key, value in row.items() if not any(word in key for word in TIMED)}
        for row in metrics_file.read_metrics(workdir / "metrics.jsonl")
    ]


def read_fingerprints(workdir):
    with Checkpoints(workdir, read_only=True) as checkpoints:
        record = checkpoints.load_record(STEPS)
    return record["params"], record["optimizer"]


def find_newest(workdir):
    return (
        max(int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdecimal())
        if workdir.exists()
        else 0
    )


@pytest.fixture(scope="module")
def undisturbed(whole, configured, command, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    done = command(*words_of(configured, workdir))
    assert done.returncode == 0, done.stderr
    return workdir


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ten_faults_end_with_the_same_bits(
    undisturbed, configured, command, small_disk, tmp_path, monkeypatch, record_property, seed
):
    disk = small_disk("24m")
    workdir, faults = disk / "run", 0
    monkeypatch.setenv("FAULTY_PLACE", str(disk))
    for kind, moment, ahead in draw_schedule(seed):
        saved = find_newest(workdir)
        if kind == "damage":
            damage_params(workdir / "checkpoints" / str(saved))
            faults += 1
            continue
        step = saved + ahead if moment not in AT_A_SAVE else (saved // EVERY + 1) * EVERY
        done = command(*words_of(configured, workdir), *LIMITS, fault=f"{kind}:{moment}:{step}")
        assert done.returncode == KINDS[kind][1], (
            f"{kind}:{moment}:{step} gave {done.returncode}: {done.stderr}"
        )
        (disk / "ballast").unlink(missing_ok=True)
        faults += 1
    done = command(*words_of(configured, workdir))
    assert done.returncode == 0, done.stderr
    assert (
        read_untimed_rows(workdir) == read_untimed_rows(undisturbed)
        and len(read_untimed_rows(workdir)) == STEPS
    )
    assert read_fingerprints(workdir) == read_fingerprints(undisturbed)
    print(done.stderr.splitlines()[-1])
    seconds = goodput.read_ledger(workdir / goodput.NAME)["seconds"]
    record_property("faults", faults)
    record_property("ended with the same bits", 1)
    record_property(
        f"goodput of schedule {seed} in %",
        round(100 * seconds["step"] / (sum(seconds.values()) - seconds["down"]), 1),
    )
    record_property(f"lost of schedule {seed} in s", round(seconds["lost"], 1))


def damage_params(step):
    """Cut the largest file of the parameters in half."""
    path = max((step / "params").rglob("d/*"), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
