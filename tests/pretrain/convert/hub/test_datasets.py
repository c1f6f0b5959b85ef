"""A dataset of the Hub is read a file at a time, and gives the rows that its files give here."""

import hashlib
import io
import shutil

import pytest

from data.cleaning.settings import CleaningSettings
from data.corpus import sources
from data.corpus.hub import client, layout, shards
from data.corpus.hub.client import HubError
from data.prepare.build import prepare_store
from data.prepare.request import PrepareRequest
from pretrain.__main__ import main
from tests.data.corpus.reading import json_lines, read_documents
from tests.faults.conftest import make_texts
from tests.pretrain.convert.hub.stand_in import STRANGER

ENDS = (".jsonl", ".parquet", ".txt", ".jsonl.gz")
TEXTS = make_texts(90)
NAMES = [f"data/train-0000{i}-of-00003.parquet" for i in range(3)]
README = b"""---
license: mit
configs:
- config_name: small
  data_files: "small/*.jsonl"
- config_name: large
  default: true
  data_files:
  - split: train
    path: ["large/a-*", large/b.jsonl]
  - split: test
    path: large/**/t.jsonl
- config_name: inferred
  data_dir: third
---
# texts
"""


def write_shard(texts):
    pyarrow = pytest.importorskip("pyarrow")
    parquet, file = pytest.importorskip("pyarrow.parquet"), io.BytesIO()
    parquet.write_table(pyarrow.table({"id": range(len(texts)), "text": texts}), file)
    return file.getvalue()


@pytest.fixture
def dataset(hub):
    """Add a dataset of three shards to the stand-in, and return its commit."""
    files = {name: write_shard(TEXTS[i::3]) for i, name in enumerate(NAMES)}
    files |= {"README.md": b"# no front matter", ".gitattributes": b"", "LICENSE": b"MIT"}
    files["data/test-00000-of-00001.parquet"] = write_shard(TEXTS[:3])
    return hub.add("datasets/bob/texts", files)


# ---- which files -------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("ann/t", ("ann/t", "", "train", "main")),
        ("squad:test", ("squad", "", "test", "main")),
        ("ann/t/en.x-1:dev@v1", ("ann/t", "en.x-1", "dev", "v1")),
        ("ann/t@refs/convert/parquet", ("ann/t", "", "train", "refs/convert/parquet")),
    ],
)
def test_an_address(address, parts):
    assert shards.parse_dataset(f"hf://datasets/{address}") == shards.DatasetAddress(*parts)


@pytest.mark.parametrize(
    "address", ["", "a/b/c/d", "a/b:", "a/..", "a/b/..", "a/b/c:x\x1b", "a/b@", "a/b@../x", "a b"]
)
def test_a_malformed_address_is_refused_first(hub, address):
    with pytest.raises(ValueError, match=r"hf://datasets/"):
        sources.resolve_source(f"hf://datasets/{address}")
    assert not hub.requests


@pytest.mark.parametrize(
    ("names", "config", "split", "found"),
    [  # without `configs`, as `datasets` reads names
        ("data/train-00000-of-00001.parquet data/dev-00000-of-00001-ab.parquet x.parquet", "", "dev",
         "data/dev-00000-of-00001-ab.parquet"),
        ("en/train-00000-of-00001.parquet de/train-00000-of-00001.parquet", "de", "train",
         "de/train-00000-of-00001.parquet"),
        ("data/en/a.jsonl data/de/a.jsonl", "en", "train", "data/en/a.jsonl"),
        ("train/b.jsonl train/a.jsonl test/a.jsonl", "", "train", "train/a.jsonl train/b.jsonl"),
        ("en/train/0.parquet en/test/0.parquet", "en", "test", "en/test/0.parquet"),
        ("my_train.jsonl valid-1.jsonl evaluation.jsonl", "", "validation", "valid-1.jsonl"),
        ("my_train.jsonl valid-1.jsonl evaluation.jsonl", "", "test", "evaluation.jsonl"),
        ("training/trainer.txt", "", "train", "training/trainer.txt"),
        ("restrained.txt b/c.txt", "", "train", "b/c.txt restrained.txt"),
        ("forget/a.jsonl retain/a.jsonl", "", "retain", "retain/a.jsonl"),
        ("a.jsonl b.jsonl c.txt .x.jsonl __y/a.jsonl ../a.jsonl /a.jsonl", "", "train",
         "a.jsonl b.jsonl"),
    ],
)  # fmt: skip
def test_files_by_their_names(names, config, split, found):
    assert layout.choose_files("p", names.split(), b"", config, split, ENDS) == found.split()


@pytest.mark.parametrize(
    ("config", "split", "found"),
    [
        ("", "train", "large/a-0.jsonl large/a-1.jsonl large/b.jsonl"),
        ("large", "test", "large/t.jsonl large/x/y/t.jsonl"),
        ("small", "train", "small/a.jsonl"),
        ("inferred", "test", "third/test.jsonl"),
    ],
)
def test_files_by_the_readme(config, split, found):
    names = (
        "small/a.jsonl small/x/b.jsonl large/a-1.jsonl large/a-0.jsonl large/b.jsonl large/t.jsonl"
    )
    names += " large/x/y/t.jsonl third/test.jsonl third/train.jsonl"
    assert layout.choose_files("p", names.split(), README, config, split, ENDS) == found.split()


@pytest.mark.parametrize(
    ("readme", "config", "split", "message"),
    [
        (README, "huge", "train", "no configuration 'huge'; it has small, large, inferred"),
        (README, "large", "dev", "no split 'dev' of the configuration large; it has train, test"),
        (README.replace(b"default: true", b"x: y"), "", "train", "name one.*: small, large, inf"),
        (b"", "huge", "train", "no configuration 'huge'; folders are large, small"),
        (b"", "", "dev", "no split 'dev'; it has train, test"),
        (b"---\na: [\n---\n", "", "train", r"README.md is no YAML"),
        (b"---\na: " + b"[" * 500 + b"\n---\n", "", "train", r"README.md is no YAML"),
        (b"---\n" + b"#" * (1 << 20) + b"x\n---\n", "", "train", "at most 1,048,576 are read"),
    ],
)
def test_no_such_files(readme, config, split, message):
    names = ["small/a.jsonl", "large/a-0.jsonl", "large/t.jsonl", "large/x-train.txt", "a-test.txt"]
    with pytest.raises(ValueError, match=f"^p: .*{message}"):
        layout.choose_files("p", names, readme, config, split, ENDS)
    with pytest.raises(ValueError, match="p: a.pdf is no .jsonl"):
        layout.choose_files("p", ["a.pdf"], b"---\nconfigs: [{data_files: '*'}]\n---\n", "", "train", ENDS)  # fmt: skip


def test_merges_of_a_front_matter_are_not_made():
    """Nine lines that a YAML reader with merges turns into a billion entries."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 10)]
    readme = "\n".join(["---", *lines, "---", ""]).encode()
    assert layout.choose_files("p", ["a.txt"], readme, "", "train", ENDS) == ["a.txt"]


def test_a_tag_of_python_in_a_front_matter_makes_nothing(tmp_path):
    harm = tmp_path / "harm"
    readme = f"---\na: !!python/object/apply:os.mkdir [{harm}]\n---\n".encode()
    assert layout.choose_files("p", ["a.txt"], readme, "", "train", ENDS) == ["a.txt"]
    assert not harm.exists()


# ---- the store ---------------------------------------------------------------


def hash_store(store):
    """Return {file: its hash} of all files of a store but the manifest, which names the sources."""
    return {
        str(path.relative_to(store)).partition("/")[2]: hashlib.sha256(path.read_bytes()).digest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def prepare(source, output, **options):
    return prepare_store(
        PrepareRequest((str(source),), vocab_size=40, held_out=0.1),
        output,
        job_bytes=1000,
        **options,
    )


def test_a_killed_prepare_goes_on_at_a_shard(hub, dataset, tmp_path, monkeypatch):
    """The third shard cannot be had at first, in either pass; the first two are had once a pass."""
    hub.fail(f"(GET|HEAD) .*{NAMES[2]}", 503)
    files = hub.files("datasets/bob/texts")
    gets = [f"GET /storage/{hashlib.sha256(files[name]).hexdigest()}" for name in NAMES]
    folder = tmp_path / "own"
    with pytest.raises(HubError, match=rf"^hf://datasets/bob/texts@{dataset}/{NAMES[2]}: .*503"):
        prepare("hf://datasets/bob/texts", folder / "store")
    assert [hub.count(get) for get in gets] == [1, 1, 0]
    assert not (folder / "store").exists()
    hub.failures.clear()
    download, downloads = shards.download_file, []

    def fail_at_last(url, *others):
        downloads.append(url)
        if len(downloads) == 3:  # the third shard to sample, and two to encode
            hub.fail(f"HEAD .*{NAMES[2]}", 503)
        return download(url, *others)

    monkeypatch.setattr(sources, "download_hub_file", fail_at_last)
    with pytest.raises(HubError, match="503"):
        prepare("hf://datasets/bob/texts", folder / "store")
    assert [hub.count(get) for get in gets] == [2, 2, 1]
    hub.failures.clear()
    made = prepare("hf://datasets/bob/texts", folder / "store")
    assert [hub.count(get) for get in gets] == [2, 2, 2] and len(downloads) == 5
    assert {path.name for path in folder.iterdir()} <= {"store", *folder.glob(".store.gen*")}
    assert made.store.manifest["inputs"][0]["commit"] == dataset
    local = tmp_path / "local"
    local.mkdir()
    for i in range(3):
        (local / f"{i}.jsonl").write_text(json_lines(*TEXTS[i::3]))
    other = prepare(local, tmp_path / "other").store.manifest
    described = ("text_by_source", "sampled_bytes", "sizes", "totals", "splits", "held_out")
    assert {key: made.store.manifest[key] for key in described} == {
        key: other[key] for key in described
    }
    assert hash_store((tmp_path / "other").resolve()) == hash_store((folder / "store").resolve())
    assert prepare("hf://datasets/bob/texts", folder / "store").existed
    newer = hub.files("datasets/bob/texts") | {"data/train-00003-of-00003.parquet": b""}
    commit = hub.repositories["datasets/bob/texts"].add_commit("main", newer, "newer")
    with pytest.raises(FileExistsError, match=f"commit: '{dataset}' in the store, '{commit}' req"):
        prepare("hf://datasets/bob/texts", folder / "store")


def test_a_killed_search_for_copies_goes_on_at_a_shard(hub, dataset, tmp_path):
    """A third pass finds copies; its results of the first two shards are not made again."""
    files = hub.files("datasets/bob/texts")
    gets = [f"GET /storage/{hashlib.sha256(files[name]).hexdigest()}" for name in NAMES]
    settings = CleaningSettings(drop_duplicates="near", keep_where=("id=1", "id=2", "id=3"))
    source = "hf://datasets/bob/texts"
    request = PrepareRequest((source,), vocab_size=28, held_out=0.5, cleaning=settings)
    hub.fail(f"(GET|HEAD) .*{NAMES[2]}", 503)
    with pytest.raises(HubError, match="503"):
        prepare_store(request, tmp_path / "store", job_bytes=1000)
    assert [hub.count(get) for get in gets] == [1, 1, 0]
    hub.failures.clear()
    manifest = prepare_store(request, tmp_path / "store", job_bytes=1000).store.manifest
    assert [hub.count(get) for get in gets] == [3, 3, 3]
    assert manifest["totals"]["documents"] == 90 and manifest["dropped"]["documents"] == 81


def test_each_file_is_compared_and_removed(hub, dataset, tmp_path, monkeypatch):
    source, name = "hf://datasets/bob/texts", NAMES[1]
    monkeypatch.setattr(shards.tempfile, "tempdir", str(tmp_path))
    assert read_documents(source) == [text.strip() for i in range(3) for text in TEXTS[i::3]]
    assert read_documents(f"{source}:test@{dataset}") == [text.strip() for text in TEXTS[:3]]
    cache = tmp_path / "cache"
    assert not any(path for path in tmp_path.rglob("*.parquet"))
    whole = hub.files("datasets/bob/texts")[name]
    hub.sent[name] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(HubError, match=rf"{dataset}/{name}: .*not the file that the Hub declares"):
        read_documents(source)
    hub.sent.clear()
    usage = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(shards.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"No space left.*train-00000-of-00003.parquet has .*100 are"):
        read_documents(source)
    assert not list(tmp_path.glob("shard-*")) and not list(cache.glob("datasets--*"))


def test_a_file_of_the_cache_is_read_there(hub, dataset, tmp_path):
    from huggingface_hub import hf_hub_download

    for name in NAMES:
        hf_hub_download("bob/texts", name, repo_type="dataset", revision=dataset)
    gets = hub.count("GET /storage")
    assert len(read_documents("hf://datasets/bob/texts")) == len(TEXTS)
    assert hub.count("GET /storage") == gets == 3


def test_a_broken_file_is_named_by_its_address(hub):
    commit = hub.add("datasets/bob/bad", {"a/b.jsonl": b'{"text": "x"}\n{"no": 1}\n'})
    with pytest.raises(ValueError, match=f"^hf://datasets/bob/bad@{commit}/a/b.jsonl, line 2: "):
        read_documents("hf://datasets/bob/bad")


def test_who_may_not_read_a_dataset(hub, dataset, monkeypatch, capsys, tmp_path):
    """One line with the remedy for each, of `prepare` itself."""

    def get_error(source):
        assert main(["prepare", source, "--output", str(tmp_path / "no")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    hub.add("datasets/ann/secret", {"a.txt": b"x"}, private=True)
    hub.add("datasets/bob/gated", {"README.md": b"x", "a.txt": b"x"}, gated=True)
    assert "there is no such repository" in get_error("hf://datasets/bob/absent")
    assert "Invalid rev id: v9" in get_error("hf://datasets/bob/texts@v9")
    assert "no split 'dev'; it has test, train" in get_error("hf://datasets/bob/texts:dev")
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    assert "the token may not see it" in get_error("hf://datasets/ann/secret")
    monkeypatch.delenv("HF_TOKEN")
    assert "answers 401" in (line := get_error("hf://datasets/ann/secret")) and "HF_TOKEN" in line
    assert "the repository is gated: accept its terms" in get_error("hf://datasets/bob/gated")
    constants = client.load_library().constants
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 cannot be reached" in get_error("hf://datasets/bob/texts")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "hf download --repo-type dataset bob/texts" in get_error("hf://datasets/bob/texts")
    monkeypatch.setattr("data.members.has_module", lambda name: False)
    assert "needs huggingface_hub" in get_error("hf://datasets/bob/texts")


def test_a_killed_prepare_with_clusters_sees_each_member_again(hub, dataset, tmp_path, monkeypatch):
    """A saved result of a shard would not say which members it had."""
    (tmp_path / "clusters.tsv").write_text("".join(f"c\t{text}\n" for text in TEXTS[:3]))
    request = PrepareRequest(
        ("hf://datasets/bob/texts",),
        vocab_size=28,
        held_out=0.5,
        held_out_by="text",
        clusters=str(tmp_path / "clusters.tsv"),
    )
    download, downloads = shards.download_file, []

    def fail_at_last(url, *others):
        downloads.append(url)
        if len(downloads) == 6:  # three shards to sample, and the third one to encode
            hub.fail(f"HEAD .*{NAMES[2]}", 503)
        return download(url, *others)

    monkeypatch.setattr(sources, "download_hub_file", fail_at_last)
    with pytest.raises(HubError, match="503"):
        prepare_store(request, tmp_path / "store", job_bytes=1000)
    hub.failures.clear()
    assert not prepare_store(request, tmp_path / "store", job_bytes=1000).existed
