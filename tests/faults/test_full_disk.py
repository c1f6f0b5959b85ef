"""Row 12: a full disk or a missing folder ends the run with an error that names it; "saved" is
never printed wrongly, and the previous step stays.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from pretrain.__main__ import main
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import Checkpoints
from tests import forks
from tests.faults.conftest import FAULTY, make_texts


def assert_sound(workdir, restorable, run):
    """Check that each committed step can be restored bit by bit, and return the steps."""
    shapes, placed = restorable(run)
    with Checkpoints(workdir, read_only=True) as checkpoints:
        for step in checkpoints.list_steps():
            checkpoints.restore_step(step, shapes, placed, None)
        return checkpoints.list_steps()


def fill_disk(disk, leave):
    """Leave so many bytes of a disk free."""
    free = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - leave)))


def test_a_full_disk_ends_the_run_and_the_step_before_is_intact(
    finished, configured, restorable, small_disk, command, record_property
):
    run, workdir = finished
    disk = small_disk("6m")
    shutil.copytree(workdir, disk / "run")
    for step in ("8", "12"):
        shutil.rmtree(disk / "run" / "checkpoints" / step)
    fill_disk(disk, leave=100_000)
    done = command("train", configured("bert")[0], "--workdir", disk / "run")
    assert done.returncode not in (0, None), done.stdout
    assert "saved step" not in done.stdout + done.stderr
    (error_line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "No space left on device" in error_line and str(disk / "run") in error_line
    assert "Traceback" not in done.stderr and "ERROR" not in done.stderr
    assert (
        max(row["step"] for row in metrics_file.read_metrics(disk / "run" / "metrics.jsonl")) <= 12
    )
    assert assert_sound(disk / "run", restorable, run) == [4]
    (disk / "ballast").unlink()
    again = command("train", configured("bert")[0], "--workdir", disk / "run")
    assert again.returncode == 0 and "saved step 12" in again.stderr, again.stderr
    record_property("full disks told", 1)


@pytest.mark.more
def test_a_disk_that_fills_while_it_runs(
    whole, configured, restorable, small_disk, command, monkeypatch, record_property
):
    """After step 8 was saved, the last save fails."""
    path, run, _ = configured("bert")
    disk = small_disk("6m")
    monkeypatch.setenv("FAULTY_PLACE", str(disk))
    done = command("train", path, "--workdir", disk / "run", fault="full:saved:8")
    assert done.returncode == 2, done.stderr
    assert "saved step" not in done.stdout + done.stderr
    assert "error: " in done.stderr and "Traceback" not in done.stderr
    assert assert_sound(disk / "run", restorable, run) == [8, 4]
    record_property("full disks told", 1)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("moment", ["step:6", "save:8", "finish:8", "saved:4"])
def test_a_checkpoints_folder_that_is_replaced_by_a_file_ends_the_run(
    whole, configured, command, tmp_path, monkeypatch, record_property, moment
):
    monkeypatch.setenv("FAULTY_PLACE", str(tmp_path / "run" / "checkpoints"))
    done = command(
        "train",
        configured("bert")[0],
        "--workdir",
        tmp_path / "run",
        fault=f"gone:{moment}",
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    (error_line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert str(tmp_path / "run" / "checkpoints") in error_line and "saved step" not in done.stderr
    record_property("replaced folders told", 1)


def test_a_disk_that_is_read_only_is_refused_and_left_as_it_is(
    finished, configured, restorable, small_disk, refused, record_property
):
    """Make the disk read-only, as a kernel does after errors."""
    run, workdir = finished
    disk = small_disk("6m")
    shutil.copytree(workdir, disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    line = refused("train", configured("bert")[0], "--workdir", disk / "run", "train.steps=14")
    assert str(disk / "run") in line and "writ" in line
    assert assert_sound(disk / "run", restorable, run) == [12, 8, 4]
    record_property("read-only disks told", 1)


# ---- prepare ------------------------------------------------------------------


def list_tree(folder):
    """Return {path: bytes} of a folder's files."""
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.held_by(3)
@pytest.mark.parametrize("workers", [None, 1])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("free", [2_000, 60_000, 140_000])
def test_prepare_on_a_full_disk_names_the_folder_and_the_free_bytes(
    small_disk, refused, tmp_path, record_property, workers, overwrite, free
):
    """The disk fills before the first file, while the documents are encoded, and at the end."""
    disk, text = small_disk("4m"), tmp_path / "text.txt"
    options = ("--document", "record", "--vocab-size", "60", "--algorithm", "bpe")
    if overwrite:
        text.write_text("\n".join(make_texts(200)))
        assert main(["prepare", str(text), "--output", str(disk / "store"), *options]) == 0
    text.write_text("\n".join(make_texts(3000)))
    fill_disk(disk, leave=free)
    before = list_tree(disk)
    words = [*options, *(["--workers", workers] if workers else []), *(["--overwrite"] * overwrite)]
    line = refused("prepare", text, "--output", disk / "store", *words)
    assert f"error: {disk / 'store'}: No space left on device" in line and "--output" in line, line
    shown = int(re.search(r"more than the ([0-9,]+) bytes that are free", line)[1].replace(",", ""))
    assert abs(shown - free) < 20_000 and f"{text.stat().st_size:,} bytes of text" in line
    assert list_tree(disk) == before
    (disk / "ballast").unlink()
    command = ["prepare", text, "--output", disk / "store", *words]
    assert main([str(word) for word in command]) == 0
    record_property("full disks told", 1)


def test_prepare_of_a_table_on_a_full_disk(small_disk, refused, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    disk, path = small_disk("4m"), tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": make_texts(3000)}), path, row_group_size=500)
    fill_disk(disk, leave=60_000)
    before = list_tree(disk)
    words = (
        "prepare",
        path,
        "--output",
        disk / "store",
        "--vocab-size",
        "60",
        "--algorithm",
        "bpe",
    )
    line = refused(*words)
    assert f"error: {disk / 'store'}: No space left on device" in line and "--output" in line, line
    assert list_tree(disk) == before


# ---- every verb that writes ----------------------------------------------------

WRITERS = {
    "export": ["export"],
    "export for JAX": ["export", "--format", "jax"],
    "features": ["features", "--input", "TEXTS", "--layers", "all", "--pooling", "none"],
    "attention": ["attention", "fox dog river"],
    "average": ["average", "--last", "2"],
    "predict": ["predict", "--input", "TEXTS"],
    "report": ["report"],
}
NAMES = {"features": ["f.npz", "f.safetensors"], "attention": ["a.html"], "predict": ["p.jsonl"]}


@pytest.mark.held_by(2)
@pytest.mark.parametrize("title", WRITERS)
def test_a_verb_that_writes_names_the_file_on_a_full_disk(
    finished, small_disk, refused, tmp_path, record_property, title
):
    (verb, *words), disk = WRITERS[title], small_disk("1m")
    fill_disk(disk, leave=3_000)
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"{text[:12]} [MASK]" for text in make_texts(200)))
    words = [texts if word == "TEXTS" else word for word in words]
    before = list_tree(disk)
    for name in NAMES.get(verb, ["folder"]):
        line = refused(verb, *words, "--workdir", finished[1], "--output", disk / name)
        assert "No space left on device" in line and str(disk / name) in line
        if verb != "report":  # the page and its images are files of their own
            assert list_tree(disk) == before
    record_property("full disks told", 1)


def test_images_of_a_report_are_named_on_a_full_disk(
    finished, small_disk, refused, tmp_path, record_property
):
    pytest.importorskip("matplotlib")
    words = ["report", "--workdir", str(finished[1]), "--output"]
    assert main([*words, str(tmp_path / "report")]) == 0
    page, *images = sorted((tmp_path / "report").iterdir(), key=lambda path: path.suffix != ".html")
    assert images
    disk = small_disk("4m")
    fill_disk(disk, leave=page.stat().st_size + 3 * 4096)
    line = refused(*words, disk / "report")
    assert "No space left on device" in line and f"{disk / 'report'}" in line
    record_property("full disks told", 1)


def test_an_export_beyond_the_largest_file_names_the_file(
    finished, command, tmp_path, record_property
):
    """`ulimit -f`: 100 kB, less than the weights have."""
    code = (
        "import resource, sys, pretrain.__main__ as program\n"
        "import jax, pretrain.publish.export\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "sys.exit(program.main(sys.argv[1:]))"
    )
    words = ["export", "--workdir", finished[1], "--output", tmp_path / "folder"]
    done = forks.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=FAULTY.parents[2],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "File too large" in line and str(tmp_path / "folder") in line
    assert "Traceback" not in done.stderr and not (tmp_path / "folder").exists()
    record_property("full disks told", 1)
