"""Repositories of strangers: what is downloaded, what is refused before it is, and what after."""

import shutil

import pytest

from data.corpus.hub import client
from data.corpus.hub.address import Address, parse_address
from data.corpus.hub.client import HubError
from pretrain.__main__ import main
from pretrain.convert.hub import snapshot
from pretrain.convert.hub.snapshot import fetch_repository
from tests.pretrain.convert.hub.stand_in import STRANGER


@pytest.fixture
def files(exported):
    """Return {name: content} of the exported folder."""
    return {path.name: path.read_bytes() for path in exported.iterdir()}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf://ann/small", Address("ann/small", "main")),
        ("hf://gpt2", Address("gpt2", "main")),
        ("hf://ann/small@v1.0", Address("ann/small", "v1.0")),
        ("hf://ann/small@refs/pr/3", Address("ann/small", "refs/pr/3")),
        ("hf://Ann_b/s.m-a_ll@" + "0" * 40, Address("Ann_b/s.m-a_ll", "0" * 40)),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.held_by(4)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hf://", "is no name of a repository"),
        ("hf:///etc/passwd", "has 3 parts"),
        ("hf://../..", "is no name of a repository"),
        ("hf://ann/..", "is no name of a repository"),
        ("hf://ann/small/config.json", "has 3 parts"),
        ("hf://datasets/ann/small", "names one of the datasets"),
        ("hf://ann/small@", "is no revision"),
        ("hf://ann/small@../../x", "is no revision"),
        ("hf://ann/small@a..b", "is no revision"),
        ("hf://ann/small@/etc", "is no revision"),
        ("hf://ann/small@-x", "is no revision"),
        ("hf://ann/small@a b", "is no revision"),
        ("hf://ann/small@a\x1b[2J", "is no revision"),
        ("hf://ann/small@main@main", "is no revision"),
        ("hf://ann/small@" + "a" * 201, "is no revision"),
        ("hf://ann/small?x=1", "is no name of a repository"),
        ("hf://ann:token@small", "is no name of a repository"),
        ("https://huggingface.co/ann/small", "write hf://USER/NAME"),
    ],
)
def test_malformed_addresses_are_refused_first(hub, tmp_path, capsys, text, reason):
    assert main(["import", text, "--workdir", str(tmp_path / "run")]) == 2
    assert reason in capsys.readouterr().err and not hub.requests


def test_only_what_is_read_is_downloaded_and_once(hub, files):
    others = {
        "pytorch_model.bin": b"pickle",
        "modeling_evil.py": b"import os",
        ".env": b"secret",
        "tf_model.h5": b"1",
        "model.fp16.safetensors": b"1",
        "onnx/model.onnx": b"1",
        "a/config.json": b"{}",
        "../../evil": b"1",
        "/etc/evil": b"1",
        "generator/x.py": b"",
        "config.json/../evil.model": b"1",
        "training_args.bin": b"1",
    }
    commit = hub.add("bob/other", files | others)
    found = fetch_repository("hf://bob/other")
    assert {path.name for path in found.folder.rglob("*")} == files.keys() - {"README.md"}
    assert found.commit == commit == found.folder.name
    asked = hub.count("^GET .*(resolve|storage)")
    assert asked == len(files) - 1
    again = fetch_repository("hf://bob/other")
    assert again == found and hub.count("^GET .*(resolve|storage)") == asked


def test_the_steps_of_an_embedder_are_downloaded(hub, files):
    steps = {
        "modules.json": b"[]",
        "1_Pooling/config.json": b"{}",
        "2_Dense/model.safetensors": b"",
    }
    hub.add("bob/embedder", files | steps)
    found = fetch_repository("hf://bob/embedder")
    assert (found.folder / "modules.json").read_bytes() == b"[]"
    assert (found.folder / "1_Pooling" / "config.json").is_file()
    assert not (found.folder / "2_Dense").exists()


def test_a_revision_is_resolved_to_a_commit(hub, files):
    first = hub.add("bob/other", files)
    newer = files | {"config.json": files["config.json"] + b" "}
    second = hub.repositories["bob/other"].add_commit("main", newer, "newer")
    hub.repositories["bob/other"].refs["v1.0"] = first
    for revision, commit in (("", second), ("@v1.0", first), (f"@{first}", first)):
        found = fetch_repository(f"hf://bob/other{revision}")
        assert found.commit == commit
        content = hub.repositories["bob/other"].commits[commit]["config.json"]
        assert (found.folder / "config.json").read_bytes() == content


def test_without_the_network_the_cache_is_read(hub, files, monkeypatch, tmp_path, capsys):
    hub.add("bob/other", files)
    found = fetch_repository("hf://bob/other")
    monkeypatch.setattr(client.load_library().constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.requests)
    assert main(["import", "hf://bob/other", "--workdir", str(tmp_path / "run")]) == 0
    assert fetch_repository(f"hf://bob/other@{found.commit}").folder == found.folder
    assert len(hub.requests) == asked
    assert main(["import", "hf://bob/unknown", "--workdir", str(tmp_path / "no")]) == 2
    assert "is not in the cache" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model.safetensors": None, "pytorch_model.bin": b"1"}, "may run code"),
        ({"model.safetensors": None}, "has no model.safetensors; it has README.md"),
        ({"config.json": None}, "no model of transformers"),
    ],
)
def test_repositories_without_a_model_are_refused(hub, files, changed, reason):
    new = {name: content for name, content in (files | changed).items() if content is not None}
    hub.add("bob/other", new)
    with pytest.raises(ValueError, match=reason):
        fetch_repository("hf://bob/other")
    assert not hub.count("resolve|storage")


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("model.safetensors", 1 << 60, "memory"),
        ("tokenizer.json", 33 << 20, r"tokenizer.json has 34,603,008 bytes; at most 33,554,432"),
        ("config.json", None, "declares no size or no hash of config.json"),
    ],
)
def test_what_is_too_large_is_refused_before_the_download(hub, files, name, size, reason):
    hub.add("bob/other", files)
    hub.declared[name] = size
    with pytest.raises((ValueError, HubError), match=reason):
        fetch_repository("hf://bob/other")
    assert not hub.count("resolve|storage")


def test_a_full_disk_is_noticed_before_the_download(hub, files, monkeypatch):
    hub.add("bob/other", files)
    usage = shutil.disk_usage("/")._replace(free=17_000)
    monkeypatch.setattr(snapshot.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ValueError, match="17,224 bytes are to be downloaded.*17,000 free"):
        fetch_repository("hf://bob/other")
    assert not hub.count("resolve|storage")


def test_a_torn_download_goes_on_where_it_ended(hub, files):
    hub.add("bob/other", files)
    digest = hub.describe_file("model.safetensors", files["model.safetensors"])["lfs"]["sha256"]
    hub.broken[f"/storage/{digest}"] = 5000
    found = fetch_repository("hf://bob/other")
    assert (found.folder / "model.safetensors").read_bytes() == files["model.safetensors"]
    assert hub.count(f"GET /storage/{digest}") == 2


def test_other_bytes_than_declared_are_refused(hub, files):
    hub.add("bob/other", files)
    whole = files["model.safetensors"]
    hub.sent["model.safetensors"] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(HubError, match=r"model.safetensors: is not the file.*SHA-256.*delete"):
        fetch_repository("hf://bob/other")
    hub.sent["model.safetensors"] = whole[:-8]
    shutil.rmtree(client.load_library().constants.HF_HUB_CACHE)
    with pytest.raises(HubError, match=r"bob/other: .*size 12808 but has size 12800"):
        fetch_repository("hf://bob/other")


def test_a_file_of_the_cache_that_was_changed_is_refused(hub, files):
    hub.add("bob/other", files)
    path = fetch_repository("hf://bob/other").folder / "config.json"
    path.write_bytes(path.read_bytes().replace(b"24", b"25"))
    with pytest.raises(HubError, match=r"config.json: is not the file.*git blob"):
        fetch_repository("hf://bob/other")
    path.resolve().unlink()
    assert fetch_repository("hf://bob/other").folder == path.parent


def test_who_may_not_see_it(hub, files, monkeypatch):
    hub.add("ann/secret", files, private=True)
    hub.add("bob/gated", files, gated=True)
    fetch_repository("hf://ann/secret")
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    with pytest.raises(HubError, match=r"hf://ann/secret: the Hub answers 404 .*may not see it"):
        fetch_repository("hf://ann/secret")
    with pytest.raises(HubError, match=r"hf://bob/gated@v2: the Hub answers 404 .*Invalid rev id"):
        fetch_repository("hf://bob/gated@v2")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match=r"hf://ann/secret: the Hub answers 401 .*set HF_TOKEN"):
        fetch_repository("hf://ann/secret")
    with pytest.raises(HubError, match=r"hf://bob/gated: .*gated: accept its terms"):
        fetch_repository("hf://bob/gated")
    monkeypatch.setattr(client.load_library().constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match=r"hf://bob/gated: http://127.0.0.1:9 cannot be reached"):
        fetch_repository("hf://bob/gated")
