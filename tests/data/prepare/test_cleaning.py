"""`prepare` drops, counts and lists documents, the same ones for any workers and order of files."""

import collections
import itertools
import json
import pathlib
import random

import pytest

from data.cleaning.settings import CleaningSettings
from data.inspection.store_report import list_values
from data.prepare import cleaning, jobs
from data.prepare.build import PrepareRequest, prepare_store
from data.prepare.field_values import MAX_VALUES, add_value, merge_values, rank_values
from data.prepare.held_out import hash_document
from data.store.reader import Store
from pretrain.__main__ import main
from tests.data.conftest import WORDS
from tests.data.prepare.stores import hash_files, texts_of

SETTINGS = CleaningSettings(
    normalize="NFKC",
    keep_where=("language=en", "language=fr"),
    drop_where=("site.kind=forum",),
    min_characters=20,
    max_characters=2000,
    min_letters=0.6,
    drop_duplicates="near",
    decontaminate=("held-out",),
    count_values=("site.kind", "language", "place"),
)
REASONS = {
    "documents whose field language is not en or fr": 3,
    "documents whose field site.kind is forum": 2,
    "documents of fewer than 20 characters": 4,
    "documents of more than 2,000 characters": 1,
    "documents with less than 0.6 of letters": 2,
    "copies of another document": 12,
    "near copies of another document": 8,
}


def make_text(rng, count=60):
    return " ".join(rng.choice(WORDS) for _ in range(count)) + "."


def make_records():
    """Return records: 40 plain texts, and others that are dropped, each for one reason."""
    rng = random.Random(3)
    plain = [make_text(rng) for _ in range(40)]
    english = {"language": "en", "site": {"kind": "news"}}
    records = [
        english | {"language": "en" if i % 3 else "fr", "text": text}
        for i, text in enumerate(plain)
    ]
    for record in records[::3]:
        record["place"] = "x" * 200
    records += [{"language": "de", "text": make_text(rng)} for _ in range(2)]
    records += [{"text": make_text(rng)}]  # without the field
    records += [{"language": "fr", "site": {"kind": "forum"}, "text": make_text(rng)}] * 2
    records += [english | {"text": text} for text in ("Rain.", "Walk it", "so", "ﬁ" * 9)]
    records += [english | {"text": make_text(rng, 900)}]
    records += [english | {"text": "1 2 3 4 - 5 6 7 8 rain " * 3}] * 2
    records += [english | {"text": f"  {text.upper()} "} for text in plain[:12]]
    records += [english | {"text": text + " Rain"} for text in plain[20:28]]
    rng.shuffle(records)
    return records


@pytest.fixture
def folder(tmp_path):
    """Write the records to three files, the last of them packed as a whole in one job."""
    records, folder = make_records(), tmp_path / "texts"
    folder.mkdir()
    for name, part in zip("abc", (records[:20], records[20:50], records[50:]), strict=True):
        lines = "".join(json.dumps(record) + "\n\n" for record in part)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def read_list(store):
    """Return the records of the list of dropped documents."""
    entry = store.manifest["dropped"]
    lines = (store.folder / entry["list"]).read_text().splitlines()
    assert len(lines) == entry["documents"]
    return [json.loads(line) for line in lines]


def load_document(place):
    """Return the record of a place in a list."""
    lines = [line for line in pathlib.Path(place["file"]).read_text().splitlines() if line]
    return json.loads(lines[place["document"] - 1])


def fold(text):
    return text.casefold().strip()


def test_each_reason_is_counted_and_listed(folder, words, tmp_path):
    request = PrepareRequest((str(folder),), vocabulary=words, held_out=0.2, cleaning=SETTINGS)
    store = prepare_store(request, tmp_path / "store").store
    listed = read_list(store)
    counts = collections.Counter(record["reason"] for record in listed)
    noted = {reason: entry["count"] for reason, entry in store.manifest["noted"].items()}
    assert noted == {f"{reason} (dropped)": count for reason, count in counts.items()}
    near = "near copies of another document"
    # A near copy has one word more, so nearly all of its 56 runs are shared.
    assert counts[near] == 8 and REASONS == dict(counts)
    for record in listed:
        text = load_document(record)["text"]
        if "copy_of" in record:
            copied = load_document(record["copy_of"])["text"]
            assert (fold(copied) == fold(text)) == (record["reason"] != near)
            assert fold(text).removesuffix(" rain") == fold(copied).removesuffix(" rain")
            assert hash_document(copied.encode()) <= hash_document(text.encode())
    texts = [fold(text) for split in ("train", "heldout") for text in texts_of(store, split)]
    assert len(texts) == 40 and len({text.removesuffix(" rain") for text in texts}) == 40
    assert store.manifest["totals"]["documents"] == 72
    store.verify_checksums()
    _compare_values(list_values(store.manifest), folder, listed)


def _compare_values(values, folder, listed):
    """Assert that the values of fields are those of the records that are not on the list."""
    dropped = {(one["file"], one["document"]) for one in listed}
    staying = [
        record
        for path in folder.iterdir()
        for i, record in enumerate(map(json.loads, path.read_text().split("\n\n")[:-1]))
        if (str(path), i + 1) not in dropped
    ]
    assert len(staying) == 40
    for field in ("language", "place"):
        documents, sizes = collections.Counter(), collections.Counter()
        for record in staying:
            value = record.get(field)
            value = value if value is None or len(value) < 80 else value[:80] + "…"
            documents[value] += 1
            sizes[value] += len(record["text"].strip())
        rows = values[field]
        assert {row["value"]: row["documents"] for row in rows} == documents
        assert [(row["value"], row["bytes"]) for row in rows] == sizes.most_common()
        assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert {row["value"] for row in values["place"]} == {None, "x" * 80 + "…"}
    assert [row["value"] for row in values["site.kind"]] == ["news"]


def test_values_beyond_the_bound_are_not_counted_in_any_order():
    parts = [{}, {}, {}]
    for i in range(3 * MAX_VALUES // 2):
        add_value(parts[i % 3], "url", f"https://{i}", 10)
        add_value(parts[i % 3], "site", str(i % 2), 10)
    totals = []
    for order in itertools.permutations(parts):
        total = {}
        for part in order:
            merge_values(total, part)
        totals.append(total)
    assert all(part["url"] for part in parts)
    assert all(total == totals[0] for total in totals) and totals[0]["url"] is None
    rows = rank_values(totals[0])
    assert rows["url"] is None
    assert rows["site"] == [
        {"value": str(i), "documents": 750, "bytes": 7500, "share": 0.5} for i in range(2)
    ]


def test_workers_and_cuts_change_nothing(folder, words, tmp_path, monkeypatch):
    request = PrepareRequest(
        (str(folder),), vocab_size=60, sample_size=4000, held_out=0.2, cleaning=SETTINGS
    )
    prepare_store(request, tmp_path / "one")
    prepare_store(request, tmp_path / "two", workers=2, job_bytes=2000)
    monkeypatch.setattr(cleaning, "BATCH_BYTES", 300)
    monkeypatch.setattr(jobs, "BATCH_BYTES", 500)
    prepare_store(request, tmp_path / "cut", job_bytes=900)
    assert hash_files(tmp_path / "one") == hash_files(tmp_path / "two")
    assert hash_files(tmp_path / "one") == hash_files(tmp_path / "cut")


def test_the_order_of_sources_changes_no_decision(folder, words, tmp_path):
    """The files are given in another order, so that copies come before what they are copies of."""
    names = [str(folder / f"{name}.jsonl") for name in "abc"]
    options = {"vocabulary": words, "held_out": 0.2, "cleaning": SETTINGS}
    found = []
    for i, order in enumerate(([0, 1, 2], [2, 0, 1], [1, 2, 0])):
        request = PrepareRequest(tuple(names[j] for j in order), **options)
        store = prepare_store(request, tmp_path / str(i), job_bytes=1500).store
        listed = sorted(json.dumps(record, sort_keys=True) for record in read_list(store))
        found.append((listed, *(sorted(texts_of(store, s)) for s in ("train", "heldout"))))
    assert found[0] == found[1] == found[2]


def test_exact_copies_alone(folder, words, tmp_path):
    settings = CleaningSettings(drop_duplicates="exact")
    request = PrepareRequest((str(folder),), vocabulary=words, held_out=0.2, cleaning=settings)
    store = prepare_store(request, tmp_path / "store", job_bytes=1500).store
    assert {record["reason"] for record in read_list(store)} == {"copies of another document"}
    texts = {fold(record["text"]) for record in make_records()}
    assert store.manifest["dropped"]["documents"] == 72 - len(texts) == 14


def test_a_copy_of_a_validation_text_is_dropped_from_training(words, tmp_path):
    rng = random.Random(5)
    texts = [make_text(rng) for _ in range(8)]
    for name, part in (("train", texts), ("valid", texts[:3])):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in part)
        )
    request = PrepareRequest(
        (str(tmp_path / "train.jsonl"),),
        vocabulary=words,
        held_out=0.0,
        validation=(str(tmp_path / "valid.jsonl"),),
        cleaning=CleaningSettings(drop_duplicates="exact"),
    )
    store = prepare_store(request, tmp_path / "store").store
    assert store.manifest["splits"]["train"]["documents"] == 5
    assert store.manifest["splits"]["heldout"]["documents"] == 3


def test_texts_of_a_test_set_are_dropped(words, tmp_path):
    """A shared run of five words, or a short text as a whole, drops a training document."""
    rng = random.Random(7)
    tests = [make_text(rng, 12) for _ in range(4)]
    texts = [make_text(rng, 30) for _ in range(30)]
    runs = {tuple(t.casefold().rstrip(".").split()[i : i + 5]) for t in tests for i in range(8)}
    texts[3] += " " + " ".join(tests[1].upper().split()[4:9])
    texts[7] = "point, " + " ".join(tests[2].split()[2:6]) + " seven"  # a run of four
    texts += ["Rain WALKS.", "rain walks on", tests[3]]
    (tmp_path / "test one.jsonl").write_text(json.dumps({"a": tests[:2], "b": {"c": tests[2]}}))
    (tmp_path / "two.txt").write_text(
        f"rain\nwalks\n\nrain walks\n{tests[3][:30]}\n{tests[3][30:]}"
    )
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    sets = (str(tmp_path / "test one.jsonl"), str(tmp_path / "two.txt"))
    settings = CleaningSettings(decontaminate=sets, decontaminate_words=5)
    request = PrepareRequest(
        (str(tmp_path / "train.jsonl"),), vocabulary=words, held_out=0.0, cleaning=settings
    )
    store = prepare_store(request, tmp_path / "store").store
    found = {(record["document"] - 1, record["reason"]) for record in read_list(store)}
    reason = "documents that share 5 words in a row with {}"
    expected = {(30, reason.format(sets[1])), (32, reason.format(sets[1]))}
    for i, text in enumerate(texts[:30]):
        words_of = text.casefold().replace(".", "").split()
        if any(tuple(words_of[j : j + 5]) in runs for j in range(len(words_of))):
            expected.add((i, reason.format(sets[0])))
    assert (3, reason.format(sets[0])) in expected
    assert (7, reason.format(sets[0])) not in expected
    assert found == expected


def test_runs_of_the_held_out_part_are_dropped(words, tmp_path):
    """So few documents that the held-out part is chosen in a second pass."""
    rng = random.Random(9)
    shared = make_text(rng, 13)
    texts = [f"{make_text(rng)} {shared} {make_text(rng)}" for _ in range(8)]
    texts += [make_text(rng)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    request = PrepareRequest(
        (str(tmp_path / "train.jsonl"),),
        vocabulary=words,
        held_out=1e-9,
        cleaning=CleaningSettings(decontaminate=("held-out",)),
    )
    store = prepare_store(request, tmp_path / "store").store
    (held_out,) = texts_of(store, "heldout")
    has_shared = shared[:-1].casefold() in held_out.casefold()
    assert has_shared and store.manifest["dropped"]["documents"] == 7
    alone = [texts[0], f"{shared} {texts[1]}"]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in alone))
    with pytest.raises(ValueError, match="nothing is left to train on.*1 documents that share 13"):
        prepare_store(request, tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--keep-where lang=en", "no field 'lang' in the first records"),
        ("--keep-where lang", "--keep-where lang: FIELD=VALUE"),
        ("--near-threshold 0.8", "--near-threshold needs --drop-duplicates near"),
        ("--drop-duplicates near --near-threshold 1.5", "1.5: above 0, at most 1"),
        ("--min-letters nan", "--min-letters nan: above 0, at most 1"),
        ("--decontaminate none.txt", "--decontaminate none.txt: no such file"),
        ("--min-characters 9 --max-characters 5", "no document would be left"),
        ("--min-characters 0", "--min-characters 0: 1 or more"),
        ("--decontaminate-words 5", "--decontaminate-words needs --decontaminate"),
    ],
)
def test_a_bad_option_is_one_line_before_anything_is_written(
    options, message, folder, words, tmp_path, capsys
):
    command = ["prepare", str(folder), "--output", str(tmp_path / "x"), "--vocabulary", words]
    assert main([*command, *options.split()]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
    assert not (tmp_path / "x").exists()


def test_text_files_have_no_fields(corpus, words, tmp_path):
    settings = CleaningSettings(drop_where=("language=en",))
    request = PrepareRequest((str(corpus / "more" / "c.txt"),), vocabulary=words, cleaning=settings)
    with pytest.raises(
        ValueError, match="--drop-where reads fields of records, and .*c.txt has no"
    ):
        prepare_store(request, tmp_path / "store")


def test_the_summary_names_the_list_and_the_settings_are_recorded(folder, words, tmp_path, capsys):
    store = tmp_path / "store"
    command = f"prepare {folder} --output {store} --vocabulary {words} --min-characters 20"
    command = [*command.split(), "--keep-where", "language=en", "language=fr"]
    assert main(command) == 0
    out = capsys.readouterr().out
    generation = json.loads((store / "manifest.json").read_text())["generation"]
    listed = store / generation / "dropped" / "documents.jsonl"
    assert f"dropped  7 of 72 documents, listed in {listed}\n" in out and listed.is_file()
    assert Store.open(store).manifest["request"]["cleaning"] == {
        "keep_where": ["language=en", "language=fr"],
        "min_characters": 20,
    }
    assert main(command) == 0 and "already prepared" in capsys.readouterr().out
    assert main(command[:-3]) == 2
    assert "cleaning" in capsys.readouterr().err
