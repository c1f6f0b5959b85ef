"""`prepare --dry-run`: the estimate of a sample beside what `prepare` writes."""

import gzip
import json
import os

import pytest

from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.dry_run import estimate_store
from pretrain.__main__ import main
from pretrain.api.preparing import prepare


def make_line(texts, i):
    return " ".join(texts[(i * 7 + j) % len(texts)] for j in range(1 + i % 5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, texts):
    """A file of lines, one of records, and a packed one: some 1 MB of text."""
    folder = tmp_path_factory.mktemp("sources")
    lines = [make_line(texts, i) for i in range(4000)]
    (folder / "a.txt").write_text("\n".join(lines))
    records = "".join(json.dumps({"text": f"{i} {line}"}) + "\n" for i, line in enumerate(lines))
    (folder / "b.jsonl").write_text(records[: len(records) // 2].rpartition("\n")[0])
    (folder / "c.jsonl.gz").write_bytes(
        gzip.compress(records[:300_000].rpartition("\n")[0].encode())
    )
    return folder


def test_an_estimate_is_near_what_prepare_writes(folder, tmp_path, words):
    """Within 10 %, from a fifth of the text."""
    names = tuple(str(folder / name) for name in ("a.txt", "b.jsonl", "c.jsonl.gz"))
    request = PrepareRequest(names, vocabulary=words, document="record", held_out=0.1)
    before = sorted(os.walk(folder))
    estimate = estimate_store(request, sample_bytes=250_000)
    assert sorted(os.walk(folder)) == before
    plain = estimate.sources[:2]
    assert all(source.sampled < 0.3 * source.size for source in plain)
    store = prepare_store(request, tmp_path / "store").store
    counts = store.manifest["text_by_source"]
    for source, written in zip(estimate.sources, counts, strict=True):
        for unit in ("tokens", "bytes", "words", "unknown"):
            assert source.scale_up(unit) == pytest.approx(written[unit], rel=0.1), unit
    size = sum(entry["bytes"] for entry in store.manifest["files"].values())
    assert estimate.store_bytes == pytest.approx(size, rel=0.1)
    again = estimate_store(request, sample_bytes=250_000)
    assert again.sources == estimate.sources
    # A sample of all of the text is exact.
    whole = estimate_store(request, sample_bytes=1 << 30)
    assert [source.counts["tokens"] for source in whole.sources] == [
        written["tokens"] for written in counts
    ]


def test_nothing_is_written(folder, tmp_path, words, capsys):
    output = tmp_path / "store"
    command = ["prepare", str(folder / "a.txt"), "--output", str(output), "--vocab-size", "100"]
    assert main([*command, "--document", "record", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "training the vocabulary" in printed and "tokens   about" in printed
    assert "tokens per word" in printed and list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="`estimate` returns what it finds"):
        prepare(str(folder / "a.txt"), str(output), dry_run=True)
