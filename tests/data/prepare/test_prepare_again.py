import concurrent.futures
import gzip
import importlib.util
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from data.corpus import sources
from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.summary import format_summary
from data.store import atomic
from data.store.reader import Store
from data.vocabulary.load import read_vocabulary
from pretrain.host.extras import how_to_install
from tests.data.prepare.stores import hash_files, texts_of


def test_the_same_request_again_is_recognised(corpus, tmp_path, words):
    request = PrepareRequest((str(corpus),), vocabulary=words)
    prepare_store(request, tmp_path / "s")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*")}
    again = prepare_store(request, tmp_path / "s", workers=2)
    assert again.existed and format_summary(again)[0].startswith("already prepared")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*")} == before


def test_another_request_is_refused_unless_overwrite_is_set(
    corpus, tmp_path, words, vocabulary, texts
):
    request = PrepareRequest((str(corpus),), vocabulary=words)
    prepare_store(request, tmp_path / "s")
    old = hash_files(tmp_path / "s")

    def expect_refusal(message, request):
        with pytest.raises(
            FileExistsError, match=f"store of other options or inputs.*{message}.*--overwrite"
        ):
            prepare_store(request, tmp_path / "s")
        assert hash_files(tmp_path / "s") == old

    expect_refusal(
        "held_out: 0.01 in the store, 0.5 requested",
        PrepareRequest((str(corpus),), vocabulary=words, held_out=0.5),
    )
    expect_refusal("sources", PrepareRequest((str(corpus / "a.jsonl"),), vocabulary=words))
    (corpus / "more" / "d.txt").write_text(texts[9])
    expect_refusal("files: 3 in the store, 4 requested", request)
    assert not prepare_store(request, tmp_path / "s", overwrite=True).existed
    assert Store.open(tmp_path / "s").manifest["totals"]["documents"] == 62
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "s"]


def test_another_vocabulary_under_the_same_name_is_noticed(
    corpus, tmp_path, vocabulary, t5_vocabulary
):
    vocabulary.save(tmp_path / "words")
    request = PrepareRequest((str(corpus),), vocabulary=str(tmp_path / "words"))
    prepare_store(request, tmp_path / "s")
    t5_vocabulary.save(tmp_path / "words")
    with pytest.raises(FileExistsError, match="fingerprint"):
        prepare_store(request, tmp_path / "s")


def test_a_store_within_its_source_is_no_text(corpus, tmp_path, words):
    """It is found again, and replaced by one of the same text."""
    request = PrepareRequest((str(corpus),), vocabulary=words)
    first = prepare_store(request, corpus / "store").store
    (corpus / "store" / "notes.txt").write_text("text next to the generations")
    assert prepare_store(request, corpus / "store").existed
    again = prepare_store(request, corpus / "store", overwrite=True).store
    assert again.fingerprint == first.fingerprint
    resolved = sources.resolve_source(f"{corpus}/**/*.txt")
    assert not any("/store/" in path for path, *_ in resolved.files) and resolved.files


def test_a_folder_that_is_no_store_is_never_replaced(corpus, tmp_path, words):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(FileExistsError, match="is not a token store"):
        prepare_store(
            PrepareRequest((str(corpus),), vocabulary=words), tmp_path / "mine", overwrite=True
        )
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_two_at_once_do_not_disturb_each_other(corpus, tmp_path, words):
    with atomic.open_scratch_folder(tmp_path / "s") as folder:
        (folder / "work").write_text("in progress")
        with pytest.raises(BlockingIOError, match="is being written by another process"):
            prepare_store(PrepareRequest((str(corpus),), vocabulary=words), tmp_path / "s")
        assert (folder / "work").exists()
    prepare_store(PrepareRequest((str(corpus),), vocabulary=words), tmp_path / "s")


def test_files_of_a_killed_run_are_removed(corpus, tmp_path, words):
    left = tmp_path / ".s.part-0123abcd"
    (left / "store").mkdir(parents=True)
    (left / "store" / "manifest.json").write_text("{")
    (left / "lock").write_text(atomic.LOCK_MARK)
    prepare_store(PrepareRequest((str(corpus),), vocabulary=words), tmp_path / "s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "s"]


KILLED = """
import pathlib, sys
from data.prepare.build import PrepareRequest, prepare_store

if __name__ == "__main__":
    source, words, output, workers = sys.argv[1:]
    prepare_store(PrepareRequest((source,), vocabulary=words), output, workers=int(workers) or None, job_bytes=20_000, report_progress=print)
"""


@pytest.mark.held_by(1)
@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_at_any_moment(tmp_path, texts, words, workers):
    """SIGKILL after increasing delays leaves no store or a whole one and no process, and the next
    run succeeds.
    """
    source = tmp_path / "a.jsonl"
    source.write_text(
        "".join(json.dumps({"text": " ".join(texts[i % 90 :])}) + "\n" for i in range(200))
    )
    prepare_store(
        PrepareRequest((str(source),), vocabulary=words), tmp_path / "right", job_bytes=20_000
    )
    right, output = hash_files(tmp_path / "right"), tmp_path / "s"
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(source), words, str(output), str(workers)]
    path = os.pathsep.join(
        [str(pathlib.Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    )
    for seconds in (0.05, 0.3, 0.6):
        before = set(tmp_path.glob(".s.*"))
        process = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        while process.poll() is None and set(tmp_path.glob(".s.*")) <= before:
            time.sleep(0.002)
        time.sleep(seconds)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while is_alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        if is_alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("workers outlive the process that was killed")
        if output.exists():
            assert hash_files(output) == right
            break
        with pytest.raises(FileNotFoundError):
            Store.open(output)
    prepare_store(
        PrepareRequest((str(source),), vocabulary=words),
        output,
        workers=workers or None,
        job_bytes=20_000,
    )
    assert hash_files(output) == right
    assert not list(tmp_path.glob(".s.*"))


@pytest.mark.held_by(2)
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 0.02, 0.1, 0.3, 0.6])
def test_a_killed_worker_is_an_error_and_leaves_nothing(tmp_path, texts, words, seconds):
    """The worker is killed some time after it appears: while Python starts, while it imports, while
    it works.
    """
    source = tmp_path / "a.jsonl"
    source.write_text(
        "".join(json.dumps({"text": " ".join(texts[i % 90 :])}) + "\n" for i in range(6000))
    )
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        work = thread.submit(
            prepare_store,
            PrepareRequest((str(source),), vocabulary=words),
            tmp_path / "s",
            workers=2,
            job_bytes=100_000,
        )
        while not (workers := multiprocessing.active_children()) and not work.done():
            time.sleep(0.001)
        time.sleep(seconds)
        workers[0].kill()
        with pytest.raises(ChildProcessError, match="a worker process was killed"):
            work.result(timeout=60)
    assert [path.name for path in tmp_path.iterdir()] == [
        "a.jsonl"
    ] and not multiprocessing.active_children()


def is_alive(session: int) -> bool:
    """Return whether a process of the session runs."""
    try:
        os.killpg(session, 0)
        return True
    except ProcessLookupError:
        return False


# ---- the command line


def run_prepare(*words):
    from pretrain.__main__ import main

    return main(["prepare", *map(str, words)])


def test_the_verb(corpus, tmp_path, capsys):
    command = (
        corpus, "--output", tmp_path / "s", "--vocab-size", 180, "--layout", "t5", "--held-out",
        0.1, "--workers", 1,
    )  # fmt: skip
    assert run_prepare(*command) == 0
    out = capsys.readouterr().out
    store = Store.open(tmp_path / "s")
    tokens = store.manifest["splits"]["train"]["tokens"]
    for part in (
        f"{tokens:,} tokens", "tokens/s", " in 61 documents", "180 ids (sentencepiece)",
        "unknown", "trained on", str(tmp_path / "s"),
    ):  # fmt: skip
        assert part in out, part
    assert store.vocabulary.sentinels[0] == 179 and store.vocabulary.pad == 0
    assert run_prepare(*command) == 0
    assert "already prepared" in capsys.readouterr().out
    assert run_prepare(*command, "--lowercase") == 2
    assert "lowercase: False in the store, True requested" in capsys.readouterr().err


def test_the_verb_trains_bytes(corpus, tmp_path, capsys):
    """--layout alone selects the vocabulary; no text is unknown, and every blank is preserved."""
    assert (
        run_prepare(
            corpus,
            "--output",
            tmp_path / "s",
            "--vocab-size",
            300,
            "--layout",
            "roberta",
            "--held-out",
            0,
        )
        == 0
    )
    assert "300 ids (byte_bpe)" in capsys.readouterr().out
    store = Store.open(tmp_path / "s")
    assert (
        store.manifest["request"]["algorithm"] == "byte_bpe"
        and store.manifest["totals"].get("unknown", 0) == 0
    )
    assert (store.vocabulary.pad, store.vocabulary.mask) == (1, 299)
    assert "A title\n\n" in "".join(texts_of(store, "train"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.txt"], "nowhere.txt: no such file or folder"),
        (["builtin", "--vocabulary", "nowhere"], "nowhere: no such vocabulary"),
        (["builtin", "--vocabulary", "v", "--vocab-size", "9", "--lowercase"],
         "--vocab-size, --lowercase would train one"),
        (["builtin", "--output", "gs://bucket/s"], "must be on this machine"),
        (["builtin", "--workers", "0"], "--workers 0"),
        (["builtin", "--workers", "100000"], "--workers 100000: at most "),
        (["builtin", "--rates", "1,2"], "2 rates for 1 sources"),
        (["builtin", "--scratch", "gs://bucket/scratch"], "--scratch needs --runner"),
        (["builtin", "--runner-option", "region=x"], "--runner-option needs --runner"),
        (["builtin", "--runner", "DirectRunner", "--workers", "2"], "--workers sets the processes of this machine"),
    ],
)  # fmt: skip
def test_the_verb_reports_errors(tmp_path, capsys, words, message):
    assert run_prepare("--output", tmp_path / "s", *words) == 2
    assert "error: " in (err := capsys.readouterr().err) and message in err
    assert not list(tmp_path.iterdir())


def test_a_runner_without_apache_beam_names_the_extra(tmp_path, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "apache_beam" else found(name)
    )
    assert run_prepare("builtin", "--output", tmp_path / "s", "--runner", "DirectRunner") == 2
    assert (
        capsys.readouterr().err == f"error: --runner needs Apache Beam: {how_to_install('beam')}\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_released_vocabularies_make_stores(corpora, tmp_path, corpus):
    for name, lossless in (
        ("vocab_bert_uncased", False),
        ("vocab_gpt2", True),
        ("vocab_t5/t5_spiece.model", True),
    ):
        output = tmp_path / name.replace("/", "_")
        prepare_store(
            PrepareRequest((str(corpus / "more"),), vocabulary=str(corpora / name), held_out=0),
            output,
        )
        store = Store.open(output)
        assert store.vocabulary == read_vocabulary(corpora / name)
        with gzip.open(corpus / "more" / "b.jsonl.gz", "rt") as file:
            documents = [json.loads(line)["text"] for line in file]
        read = texts_of(store, "train")[: len(documents)]
        assert read == (documents if lossless else [text.lower() for text in documents])
        first = (
            store.open_split("train")
            .tokens[: store.open_split("train").document_starts[1]]
            .tolist()
        )
        assert first == store.vocabulary.encode(documents[0])
