"""Xet, the Hub's newer storage: by the real `hf_xet`, with a folder as the storage."""

import hashlib

import pytest

from pretrain.convert.hub.snapshot import fetch_repository
from pretrain.convert.safe_folder import FolderTensors
from pretrain.publish.upload import Target, push_folder


@pytest.mark.more
def test_pushed_and_fetched_by_xet(hub, exported, tmp_path, monkeypatch):
    pytest.importorskip("hf_xet")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.delenv("HF_HUB_DISABLE_XET")
    weights = (exported / "model.safetensors").read_bytes()
    digest = hashlib.sha256(weights).hexdigest()
    hub.xet = tmp_path / "storage"
    hub.xet.mkdir()
    hub.stored[digest] = weights  # which the commit names, and nobody downloads
    push_folder(exported, Target("ann/small"))
    assert hub.count("xet-write-token") == 1 and not hub.count("batch|PUT")
    assert hub.find_xet_hash(digest)

    found = fetch_repository("hf://ann/small")
    assert hub.count("xet-read-token") == 1 and not hub.count("GET /storage")
    path = found.folder / "model.safetensors"
    assert path.read_bytes() == weights
    assert set(FolderTensors(found.folder)) == set(FolderTensors(exported))
    if hasattr(constants, "HF_HUB_DISABLE_SHARED_BLOBS"):  # since huggingface_hub 2
        assert path.resolve().parents[1] == tmp_path / "cache" / "blobs"
