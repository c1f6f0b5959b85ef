"""`prepare --follow` publishes the beginnings of a store, with the bytes that the store will have."""

import random
import re

import pytest

from data.cleaning.settings import CleaningSettings
from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.held_out import hash_document
from data.prepare.job_report import NUM_HASHES
from data.store.reader import Store
from pretrain.__main__ import main
from tests.data.conftest import WORDS
from tests.data.prepare.stores import hash_files, texts_of

JOB_BYTES = 300
NUM_DOCUMENTS = 400  # about 80 jobs: two parts, after 16 and 64


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Return the path of a file with a document in each line; each tenth is a copy."""
    rng = random.Random(4)
    texts = [" ".join(rng.choice(WORDS) for _ in range(9)) + "." for _ in range(NUM_DOCUMENTS)]
    texts[1::10] = texts[::10]
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


@pytest.fixture
def request_(lines, words):
    return PrepareRequest((str(lines),), vocabulary=words, document="record", held_out=0.1)


def follow(request, output, **options):
    """Prepare a store with its parts; return the store and the printed lines."""
    printed = []
    options = {"job_bytes": JOB_BYTES, "follow": True, "report_progress": printed.append} | options
    return prepare_store(request, output, **options).store, printed


def test_a_part_is_the_beginning_of_the_store(request_, tmp_path):
    whole, printed = follow(request_, tmp_path / "s")
    prepare_store(request_, tmp_path / "plain", job_bytes=JOB_BYTES)
    assert hash_files(tmp_path / "s") == hash_files(tmp_path / "plain")
    assert [line.split(" is ready")[0] for line in printed] == [
        str(tmp_path / "s-part-1"),
        str(tmp_path / "s-part-2"),
    ]
    sizes = []
    for number in (1, 2):
        part = Store.open(tmp_path / f"s-part-{number}")
        part.verify_checksums()
        for split in ("train", "heldout"):
            texts = texts_of(part, split)
            assert texts and texts == texts_of(whole, split)[: len(texts)], split
        assert part.manifest["totals"]["documents"] == sum(
            part.manifest["splits"][split]["documents"] for split in ("train", "heldout")
        )
        sizes.append(part.manifest["totals"]["bytes"])
    first, second = sizes
    assert 16 * JOB_BYTES * 0.8 < first < 16 * JOB_BYTES * 1.2
    assert 3.8 < second / first < 4.2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("plain", "s", "s-part-1", "s-part-2")
    ]


@pytest.mark.more
def test_the_parts_do_not_depend_on_the_workers(request_, tmp_path):
    follow(request_, tmp_path / "one" / "s")
    follow(request_, tmp_path / "two" / "s", workers=2)
    assert hash_files(tmp_path / "one") == hash_files(tmp_path / "two")


def test_a_part_lists_what_was_dropped_until_then(lines, words, tmp_path):
    request = PrepareRequest(
        (str(lines),),
        vocabulary=words,
        document="record",
        held_out=0.1,
        cleaning=CleaningSettings(drop_duplicates="exact"),
    )
    whole, _ = follow(request, tmp_path / "s")
    part = Store.open(tmp_path / "s-part-1")
    listed, expected = (
        (store.folder / store.manifest["dropped"]["list"]).read_text().splitlines()
        for store in (part, whole)
    )
    assert 5 <= len(listed) == part.manifest["dropped"]["documents"] < len(expected) == 40
    assert listed == expected[: len(listed)]
    part.verify_checksums()


def test_the_parts_of_a_stopped_prepare_stay(request_, tmp_path):
    """What was published is whole, and the same command goes on to the same bytes."""

    def stop(line):
        if "part-1" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(request_, tmp_path / "s", report_progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["s-part-1"]
    before = hash_files(tmp_path / "s-part-1")
    written = (tmp_path / "s-part-1" / "manifest.json").stat().st_mtime_ns
    _, printed = follow(request_, tmp_path / "s")
    assert len(printed) == 2
    assert hash_files(tmp_path / "s-part-1") == before
    assert (tmp_path / "s-part-1" / "manifest.json").stat().st_mtime_ns == written
    prepare_store(request_, tmp_path / "plain", job_bytes=JOB_BYTES)
    assert hash_files(tmp_path / "s") == hash_files(tmp_path / "plain")


def test_another_store_in_the_place_of_a_part(request_, lines, words, tmp_path):
    other = PrepareRequest((str(lines),), vocabulary=words, document="block", held_out=0)
    prepare_store(other, tmp_path / "s-part-1")
    before = hash_files(tmp_path / "s-part-1")
    with pytest.raises(
        FileExistsError, match=r"s-part-1 is a store of other options.*part: 'none'"
    ):
        follow(request_, tmp_path / "s")
    assert hash_files(tmp_path / "s-part-1") == before and not (tmp_path / "s").exists()
    follow(request_, tmp_path / "s", overwrite=True)
    assert Store.open(tmp_path / "s-part-1").manifest["part"] == 1
    # A part is not the whole, which the same request would otherwise find prepared.
    with pytest.raises(FileExistsError, match="part: 1 in the store, 'none' requested"):
        prepare_store(request_, tmp_path / "s-part-1", job_bytes=JOB_BYTES)
    (tmp_path / "notes-part-1").mkdir()
    (tmp_path / "notes-part-1" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="notes-part-1 exists and is not a token store"):
        follow(request_, tmp_path / "notes", overwrite=True)


def test_a_split_that_would_be_empty_waits(lines, words, tmp_path):
    """The documents that are held out come last, so a part is published when one of them is read."""
    texts = sorted(lines.read_bytes().splitlines(), key=hash_document, reverse=True)
    (tmp_path / "late.txt").write_bytes(b"\n".join(texts) + b"\n")
    share = (hash_document(texts[-3]) + 1) / NUM_HASHES
    request = PrepareRequest(
        (str(tmp_path / "late.txt"),), vocabulary=words, document="record", held_out=share
    )
    whole, printed = follow(request, tmp_path / "s")
    assert 1 <= len(texts_of(whole, "heldout")) <= 4
    assert len(printed) == 1 and texts_of(Store.open(tmp_path / "s-part-1"), "heldout")
    request = PrepareRequest((str(lines),), vocabulary=words, document="record", held_out=0)
    _, printed = follow(request, tmp_path / "none")
    assert len(printed) == 2 and not texts_of(Store.open(tmp_path / "none-part-1"), "heldout")


def test_a_short_text_has_no_part(request_, tmp_path):
    _, printed = follow(request_, tmp_path / "s", job_bytes=1 << 20)
    assert printed == [
        "--follow: no part was written, because the first one has 16 jobs (64 MiB of text)"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_several_sources_and_beam_are_refused(lines, request_, words, tmp_path, capsys):
    (tmp_path / "more.txt").write_text("A text of another source.\n")
    for more, message in (
        ([str(tmp_path / "more.txt")], "--follow with 2 sources: .* leave --follow out"),
        (["--validation", str(tmp_path / "more.txt")], "--follow with --validation: "),
    ):
        command = ["prepare", str(lines), *more, "--output", str(tmp_path / "s"), "--follow"]
        assert main([*command, "--vocabulary", words]) == 2
        assert re.search(message, capsys.readouterr().err), message
    with pytest.raises(ValueError, match="--follow with --runner: Beam hands over its results"):
        follow(request_, tmp_path / "s", beam_runner=lambda folder, console: None)
    assert not (tmp_path / "s").exists()


@pytest.mark.more
def test_a_run_on_a_part_goes_on_with_the_whole(request_, tmp_path, capsys):
    """A restart reads the same part; the whole is other data, and needs --allow-changes."""
    follow(request_, tmp_path / "s")
    workdir = str(tmp_path / "w")
    train = ["train", "bert_tiny", "--workdir", workdir, "model.width=32", "model.num_heads=2"]
    train += ["model.mlp=64", "model.depth=1", "data.batch_size=8", "data.objective.length=16"]
    train += ["data.objective.max_predictions=5", "evaluate.every=2", "evaluate.samples=0"]
    train += ["checkpoint.every=2", "train.steps=6", "optimizer.warmup_steps=1"]
    part, whole = f"data.store={tmp_path / 's-part-1'}", f"data.store={tmp_path / 's'}"
    assert main([*train, part, "train.stop_at_step=2"]) == 0
    assert main([*train, part, "train.stop_at_step=4"]) == 0
    assert main([*train, whole, "train.stop_at_step=0"]) == 2
    assert "holds a run of other" in capsys.readouterr().err
    assert main([*train, whole, "train.stop_at_step=0", "--allow-changes"]) == 0
    assert main(["evaluate", "--workdir", workdir]) == 0
    assert "step 6" in capsys.readouterr().out
