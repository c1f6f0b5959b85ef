"""Fixtures: the stand-in of the Hub, the client that talks to it, and a tiny run."""

import time
import types

import pytest

from tests.pretrain.convert.hub.stand_in import WRITER, serve_hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Return a stand-in that `huggingface_hub` in this process takes for the Hub.

    The client waits no seconds before it tries again.
    """
    pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
    from huggingface_hub import close_session, constants, file_download, get_session
    from huggingface_hub.utils import _http

    impatient = types.SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
    monkeypatch.setattr(_http, "time", impatient)
    monkeypatch.setattr(file_download, "time", impatient)
    with serve_hub() as hub:
        for name, value in {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_TOKEN_PATH": str(tmp_path / "token"),
            "HF_HUB_DISABLE_XET": True,
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_TOKEN", WRITER)
        get_session()  # huggingface_hub 1 makes two if two threads ask first, and closes one
        yield hub
        close_session()


@pytest.fixture(scope="session")
def imported(root, tmp_path_factory):
    """Return the workdir of a tiny BERT, imported from a folder."""
    from pretrain.__main__ import main

    workdir = tmp_path_factory.mktemp("imported") / "run"
    golden = str(root / "tests" / "goldens" / "hf_bert")
    assert main(["import", golden, "--workdir", str(workdir)]) == 0
    return workdir


@pytest.fixture(scope="session")
def exported(imported, tmp_path_factory):
    """Return an exported folder of that run; no test changes it."""
    from pretrain.__main__ import main

    folder = tmp_path_factory.mktemp("exported") / "folder"
    assert main(["export", "--workdir", str(imported), "--output", str(folder)]) == 0
    return folder


@pytest.fixture
def folder(exported, tmp_path):
    """Return a copy of the exported folder."""
    import shutil

    return shutil.copytree(exported, tmp_path / "folder")
