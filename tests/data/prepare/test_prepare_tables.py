"""The same documents make the same store, whatever the form, the workers and the cuts."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from data.prepare.build import PrepareRequest, prepare_store
from tests.data.corpus.test_table_files import write_arrow, write_csv
from tests.data.prepare.stores import hash_files


def hash_texts(folder):
    """Return the hashes of a store's files but the manifest, which names the sources."""
    return {
        name.partition("/")[2]: digest
        for name, digest in hash_files(folder).items()
        if name != "manifest.json"
    }


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl.zst"])
def test_the_form_changes_nothing(tmp_path, corpus, form):
    records = [json.loads(line) for line in (corpus / "a.jsonl").read_text().splitlines()]
    texts, path = [record["text"] for record in records], tmp_path / f"a.{form}"
    table = pyarrow.table({"id": range(len(texts)), "text": texts})
    if form == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=7)
    elif form == "arrow":
        write_arrow(path, table, rows=5)
    elif form == "csv":
        write_csv(path, {"id": range(len(texts)), "text": texts})
    else:
        zstandard = pytest.importorskip("zstandard")
        path.write_bytes(zstandard.compress((corpus / "a.jsonl").read_bytes()))
    options = {"vocab_size": 90, "sample_size": 6000, "held_out": 0.1}
    prepare_store(PrepareRequest((str(corpus / "a.jsonl"),), **options), tmp_path / "lines")
    prepare_store(PrepareRequest((str(path),), **options), tmp_path / "one", workers=1)
    prepare_store(PrepareRequest((str(path),), **options), tmp_path / "two", job_bytes=300)
    expected = hash_texts(tmp_path / "lines")
    assert expected == hash_texts(tmp_path / "one") == hash_texts(tmp_path / "two")


def test_a_bad_row_is_counted_with_its_place(tmp_path, words):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["Rain walks.", None, "Rain.", None]})
    pyarrow.parquet.write_table(table, path, row_group_size=1)
    request = PrepareRequest((str(path),), vocabulary=words, on_bad_record="skip", held_out=0.5)
    manifest = prepare_store(request, tmp_path / "store", job_bytes=30).store.manifest
    skipped = manifest["noted"]["records that could not be read (skipped)"]
    assert skipped == {"count": 2, "first": f"{path}, 2"}
    assert manifest["totals"]["documents"] == 4


def test_long_records_with_short_texts_fill_the_sample(tmp_path):
    """The sample is sized by the texts, not by the bytes of the files."""
    texts = [f"Text {i} of many" for i in range(400)]
    lines = (json.dumps({"text": text, "other": "x" * 300}) + "\n" for text in texts)
    (tmp_path / "a.jsonl").write_text("".join(lines))
    options = {"vocab_size": 40, "sample_size": 3000, "held_out": 0.1}
    done = prepare_store(PrepareRequest((str(tmp_path / "a.jsonl"),), **options), tmp_path / "one")
    assert 2980 < done.store.manifest["sampled_bytes"] <= 3000
