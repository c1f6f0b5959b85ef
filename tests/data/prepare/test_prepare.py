import gzip
import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from data.corpus import sources
from data.prepare import batches, build, job_report, jobs, local_pool
from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.summary import format_summary
from data.store import writer
from data.store.reader import Store
from tests.data.prepare.stores import hash_files, texts_of


def test_a_store_holds_the_text(corpus, tmp_path, words, texts):
    (corpus / "more" / "c.txt").write_text(f"A title\n\n{texts[0]} ☃ {texts[1]}")
    done = prepare_store(
        PrepareRequest((str(corpus),), vocabulary=words, held_out=0.3), tmp_path / "store"
    )
    store = Store.open(tmp_path / "store")
    store.verify_checksums()
    read = texts_of(store, "train") + texts_of(store, "heldout")
    bodies = [json.loads(line)["text"] for line in (corpus / "a.jsonl").read_text().splitlines()]
    with gzip.open(corpus / "more" / "b.jsonl.gz", "rt") as file:
        bodies += [json.loads(line)["text"] for line in file]
    bodies.append(f"A title {texts[0]} ☃ {texts[1]}")
    encoded = store.vocabulary.encode_batch(bodies)
    expected = [store.vocabulary.decode(ids) for ids in encoded]
    assert sorted(read) == sorted(expected)
    assert texts_of(store, "train") == [
        text for text in expected if text in texts_of(store, "train")
    ]  # in order
    assert store.manifest["totals"]["unknown"] == sum(ids.count(1) for ids in encoded) > 0
    assert 3 < len(texts_of(store, "heldout")) < 25
    assert not done.existed and store.manifest["totals"]["documents"] == 61
    # A sentence has the same ids as when it is encoded alone.
    split = store.open_split("train")
    sentence = split.tokens[: split.sentence_starts[1]].tolist()
    assert store.vocabulary.decode(sentence) in texts and sentence == store.vocabulary.encode(
        store.vocabulary.decode(sentence)
    )
    starts = set(split.sentence_starts.tolist())
    assert set(split.document_starts.tolist()) <= starts and len(starts) == len(
        split.sentence_starts
    )


@pytest.mark.slow
def test_the_number_of_processes_and_the_cuts_change_nothing(corpus, tmp_path):
    request = PrepareRequest(
        (str(corpus / "a.jsonl"), str(corpus / "more")),
        vocab_size=90,
        sample_size=6000,
        held_out=0.1,
    )
    prepare_store(request, tmp_path / "one")
    prepare_store(request, tmp_path / "two", workers=2, job_bytes=700)
    prepare_store(request, tmp_path / "small", workers=1, job_bytes=100)
    assert (
        hash_files(tmp_path / "one")
        == hash_files(tmp_path / "two")
        == hash_files(tmp_path / "small")
    )
    assert Store.open(tmp_path / "one").manifest["sampled_bytes"] <= 6000


def test_batches_change_nothing(corpus, tmp_path, words, monkeypatch):
    request = PrepareRequest((str(corpus),), vocabulary=words, held_out=0.1)
    prepare_store(request, tmp_path / "one")
    monkeypatch.setattr(jobs, "BATCH_BYTES", 50)
    monkeypatch.setattr(writer, "PART_NUMBERS", 3)
    prepare_store(request, tmp_path / "two")
    assert hash_files(tmp_path / "one") == hash_files(tmp_path / "two")


def test_held_out_documents_depend_on_their_text_alone(corpus, tmp_path, words):
    """The same documents are held out in other files and orders; copies are in the same split."""
    lines = (corpus / "a.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "other.jsonl").write_text("".join(lines[::-1][5:] * 2))
    prepare_store(
        PrepareRequest((str(corpus / "a.jsonl"),), vocabulary=words, held_out=0.3), tmp_path / "one"
    )
    prepare_store(
        PrepareRequest((str(tmp_path / "other.jsonl"),), vocabulary=words, held_out=0.3),
        tmp_path / "two",
    )
    held, other = (set(texts_of(Store.open(tmp_path / name), "heldout")) for name in ("one", "two"))
    assert held and other == held & {json.loads(line)["text"] for line in lines[:-5]}
    assert not other & set(texts_of(Store.open(tmp_path / "two"), "train"))


def test_one_document_at_least_on_either_side(tmp_path, texts, words):
    for name, share in (("few", 1e-9), ("many", 1 - 1e-9)):
        path = tmp_path / f"{name}.txt"
        path.write_text("\n\n".join(texts[:5]))
        messages = []
        prepare_store(
            PrepareRequest((str(path),), vocabulary=words, held_out=share, document="block"),
            tmp_path / name,
            report_progress=messages.append,
        )
        store = Store.open(tmp_path / name)
        assert sorted([len(texts_of(store, "train")), len(texts_of(store, "heldout"))]) == [1, 4]
        assert len(texts_of(store, "heldout")) == (1 if name == "few" else 4)
        assert any("too few documents" in line for line in messages)


def test_a_single_document_cannot_be_held_out(tmp_path, texts, words):
    (tmp_path / "a.txt").write_text(" ".join(texts))
    with pytest.raises(
        ValueError, match="single document.*--document block or record.*--held-out 0"
    ):
        prepare_store(PrepareRequest((str(tmp_path / "a.txt"),), vocabulary=words), tmp_path / "s")
    prepare_store(
        PrepareRequest((str(tmp_path / "a.txt"),), vocabulary=words, held_out=0), tmp_path / "s"
    )
    assert len(texts_of(Store.open(tmp_path / "s"), "train")) == 1 and not texts_of(
        Store.open(tmp_path / "s"), "heldout"
    )


@pytest.mark.parametrize("text", ["", " \n\n\t ", "\0\0", "\x07"])
def test_no_text_is_an_error(tmp_path, words, text):
    (tmp_path / "a.txt").write_text(text)
    for vocabulary in (words, None):
        with pytest.raises(ValueError, match="no text"):
            prepare_store(
                PrepareRequest((str(tmp_path / "a.txt"),), vocabulary=vocabulary, vocab_size=50),
                tmp_path / "s",
            )
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_bad_input_is_counted_and_placed(tmp_path, texts, words):
    (tmp_path / "a").mkdir()
    records = [
        {"text": texts[0]},
        {"text": "  "},
        {"text": texts[1] + "\0"},
        {"text": ""},
        {"text": "\x07\x07 \x08"},
    ]
    lines = [json.dumps(record).encode() for record in records]
    lines += [
        b'{"text": "caf\xe9 ' + texts[2].encode() + b'"}',
        rb'{"text": "half \ud83d pair"}',
        b'{"text": "U+FDD0 \xef\xb7\x90"}',
    ]
    lines += [
        json.dumps({"text": "walk " * 5000}).encode(),
        json.dumps({"text": "\u200b"}).encode(),
    ]
    lines += [json.dumps({"text": texts[3] + "\n\n\u200b\n\n" + texts[4]}).encode()]
    path = tmp_path / "a" / "a.jsonl"
    path.write_bytes(b"\n".join(lines))
    (tmp_path / "a" / "notes.md").write_text("x")
    done = prepare_store(
        PrepareRequest((str(tmp_path / "a"),), vocabulary=words, held_out=0.3),
        tmp_path / "s",
        job_bytes=60,
    )
    noted = {
        reason: (entry["count"], entry.get("first"))
        for reason, entry in done.store.manifest["noted"].items()
    }
    assert noted == {
        jobs.EMPTY_DOCUMENTS: (3, f"{path}, 2"),
        jobs.NUL_BYTES: (1, f"{path}, 3"),
        "documents with bytes that are not UTF-8 (replaced by U+FFFD)": (1, f"{path}, 6"),
        "documents with an unpaired surrogate (replaced by U+FFFD)": (1, f"{path}, 7"),
        jobs.RESERVED_CHARACTER: (1, f"{path}, 8"),
        batches.CUT_SENTENCES: (3, f"{path}, 9"),
        batches.TOKENLESS_DOCUMENTS: (1, f"{path}, 10"),
        batches.TOKENLESS_SENTENCES: (1, f"{path}, 11"),
        "files of other kinds in the folders": (1, None),
    }
    totals, splits = done.store.manifest["totals"], done.store.manifest["splits"]
    assert (
        totals["documents"] == 11
        and sum(split["documents"] for split in splits.values()) == 7 == totals["kept"]
    )
    lines = "\n".join(format_summary(done))
    for reason, (count, first) in noted.items():
        assert f"{count:,} {reason}" in lines and (first is None or first in lines)


@pytest.mark.parametrize("workers", [None, 2])
def test_a_bad_record_is_one_error_and_leaves_nothing(tmp_path, texts, words, workers):
    good = json.dumps({"text": texts[0]}) + "\n"
    (tmp_path / "a.jsonl").write_text(good * 30 + '{"txt": 1}\n' + good * 30 + "{\n")
    with pytest.raises(ValueError, match="a.jsonl, line 31: no field 'text'"):
        prepare_store(
            PrepareRequest((str(tmp_path / "a.jsonl"),), vocabulary=words),
            tmp_path / "s",
            workers=workers,
            job_bytes=500,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_job_notes_how_far_it_is(tmp_path, texts):
    (tmp_path / "a.txt").write_text("\n".join(texts))
    progress = np.memmap(tmp_path / "progress", np.int64, mode="w+", shape=(2,))
    piece = sources.InputChunk("record", str(tmp_path / "a.txt"), 0, None, 100)
    job = jobs.Job(0, 0, (piece,), tmp_path / "progress", 1)
    assert len(jobs.sample_job(job, [job_report.NUM_HASHES])[0]) == len(texts)
    assert progress[0] == 0 and 0 < progress[1] <= 100


def test_a_report_survives_being_sent():
    report, piece = (
        jobs.JobReport(least=3, most=job_report.NUM_HASHES - 1),
        sources.InputChunk("jsonl", "a.jsonl", 7, None, 9),
    )
    assert jobs.JobReport.from_json(jobs.JobReport().to_json()) == jobs.JobReport()
    report.totals["tokens"] += 5
    report.add_note(jobs.EMPTY_DOCUMENTS, piece, 2)
    again = jobs.JobReport.from_json(report.to_json())
    assert again == report and again.first == {jobs.EMPTY_DOCUMENTS: ("a.jsonl", 7, 2)}
    again.merge_report(report)
    assert again.totals == {"tokens": 10} and again.noted == {jobs.EMPTY_DOCUMENTS: 2}


@pytest.mark.slow
@pytest.mark.held_by("10")
@pytest.mark.parametrize("megabytes", [10, 50])
def test_a_line_of_many_megabytes(tmp_path, words, megabytes):
    line = "walking in rain and snow " * (40_000 * megabytes)
    (tmp_path / "a.txt").write_text("a walk.\n" + line + "\na talk.\n")
    done = prepare_store(
        PrepareRequest(
            (str(tmp_path / "a.txt"),), vocabulary=words, document="record", held_out=0.01
        ),
        tmp_path / "s",
    )
    totals, noted = done.store.manifest["totals"], done.store.manifest["noted"]
    cut = noted[batches.CUT_SENTENCES]["count"]
    assert totals["kept"] == 3 and cut == totals["sentences"] - 3 > 120 * megabytes
    assert totals["tokens"] > 160_000 * megabytes


def test_mixtures(corpus, tmp_path, words):
    two = (str(corpus / "a.jsonl"), str(corpus / "more"))

    def measure_rates(name, **options):
        prepare_store(PrepareRequest(two, vocabulary=words, held_out=0, **options), tmp_path / name)
        sources = Store.open(tmp_path / name).open_split("train").sources
        assert [source.name for source in sources] == list(two) and [
            source.documents for source in sources
        ] == [
            (0, 40),
            (40, 61),
        ]
        return [source.rate for source in sources]

    plain = measure_rates("plain")
    store = Store.open(tmp_path / "plain").open_split("train")
    sizes = np.array(
        [store.document_starts[40], len(store.tokens) - store.document_starts[40]], float
    )
    assert plain == pytest.approx(sizes / sizes.sum())
    smooth = measure_rates("smooth", temperature=0.7)
    assert smooth == pytest.approx(sizes**0.7 / (sizes**0.7).sum()) and plain[1] < smooth[1] < 0.5
    assert measure_rates("even", temperature=0.0) == [0.5, 0.5]
    assert measure_rates("given", rates=(3, 1)) == [0.75, 0.25]


def test_a_mixture_rules_the_sample_of_its_vocabulary(tmp_path):
    """Half of the sample comes from a source that is a hundred times smaller, if the rates require
    it.
    """
    (tmp_path / "a.txt").write_text("\n".join(f"walking talking {i}" for i in range(20_000)))
    (tmp_path / "b.txt").write_text("\n".join(f"пришёл ушёл {i}" for i in range(200)))
    names = (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    options = dict(vocab_size=46, sample_size=8_000, document="record", algorithm="bpe")
    cyrillic = []
    for name, rates in (("even", (1.0, 1.0)), ("rare", (1.0, 1e-9))):
        prepare_store(PrepareRequest(names, rates=rates, **options), tmp_path / name)
        pieces = Store.open(tmp_path / name).vocabulary.pieces
        cyrillic.append(sum("а" <= piece[-1] <= "ё" for piece in pieces))
    assert cyrillic[0] > 8 > cyrillic[1]


def test_a_source_with_nothing_to_train_on_is_an_error(tmp_path, texts, words):
    (tmp_path / "a.txt").write_text("\n".join(texts[:20]))
    (tmp_path / "b.txt").write_text(" \n\n")
    (tmp_path / "c.txt").write_text(texts[31])
    names = {name: str(tmp_path / f"{name}.txt") for name in "abc"}
    options = dict(vocabulary=words, document="record")
    with pytest.raises(ValueError, match="b.txt has nothing to train on: there is no text in it"):
        prepare_store(
            PrepareRequest((names["a"], names["b"]), held_out=0.1, **options), tmp_path / "s"
        )
    both = (names["a"], names["c"])
    with pytest.raises(
        ValueError, match="c.txt has nothing to train on: all of its documents are held out"
    ):
        prepare_store(
            PrepareRequest(both, held_out=0.95, rates=(1.0, 1.0), **options), tmp_path / "s"
        )
    prepare_store(PrepareRequest(both, held_out=0.95, **options), tmp_path / "s")
    assert [source.rate for source in Store.open(tmp_path / "s").open_split("train").sources] == [
        1.0,
        0.0,
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(layout="elmo"), "--layout elmo: bert or t5 or ul2 or gpt"),
        (dict(algorithm="char"), "--algorithm char: unigram or bpe"),
        (
            dict(layout="roberta"),
            "--layout roberta: bert or t5 or ul2 or gpt or transformer, for --algorithm unigram",
        ),
        (dict(algorithm="byte_bpe"), "--layout bert: roberta or gpt2, for --algorithm byte_bpe"),
        (dict(sources=()), "no source"),
        (dict(sources=("a", "a")), "given twice"),
        (dict(held_out=1.0), "--held-out 1.0"),
        (dict(rates=(1.0,)), "1 rates for 2 sources"),
        (dict(rates=(1.0, -1.0)), "positive"),
        (dict(temperature=-1.0), "--temperature"),
        (dict(sample_size=0), "--sample-size"),
        (dict(document="page"), "--document page"),
    ],
)
def test_requests_that_cannot_be_meant(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        prepare_store(PrepareRequest(**{"sources": ("a", "b")} | options), tmp_path / "s")


def test_rates_of_huge_numbers_are_shares():
    request = PrepareRequest(("a", "b"), rates=(1e308, 1e308))
    assert request.compute_rates([1, 1]) == [0.5, 0.5]
    request = PrepareRequest(("a", "b", "c"), temperature=400.0)
    assert request.compute_rates([10**7, 0, 10**7]) == [0.5, 0, 0.5]
    assert request.compute_rates([10**6, 1, 10**7]) == [0, 0, 1]


def test_no_worker_is_started_without_a_job():
    cores = build.count_cores()
    assert build.choose_workers(8 * cores, 1000, jobs=1) == cores
    assert build.choose_workers(8 * cores, 1 << 30, jobs=4 * cores) == 4 * cores
    assert build.choose_workers(2 * cores, 1 << 30, jobs=4 * cores) == 2 * cores


@pytest.mark.parametrize("is_terminal", [False, True])
def test_without_a_terminal_the_rate_is_printed_now_and_then(
    corpus, tmp_path, words, monkeypatch, is_terminal
):
    """A log of a batch job has no bar, and a corpus takes hours."""
    monkeypatch.setattr(local_pool, "LINE_SECONDS", 0.0)
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=200)
    request = PrepareRequest((str(corpus),), vocabulary=words, held_out=0.3)
    prepare_store(request, tmp_path / "store", console=console)
    text = console.file.getvalue()
    line = re.search(r"^encoding \d+%  \d+\.\d MB/s  \d:\d\d:\d\d left$", text, re.MULTILINE)
    assert bool(line) != is_terminal
