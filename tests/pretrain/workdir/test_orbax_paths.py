"""Paths that Orbax takes for patterns are refused before a run begins, and a save that wrote no
manifest is an error.
"""

import numpy as np
import pytest
from etils import epath

from pretrain.api.importing import import_folder
from pretrain.cli.average import average_checkpoints
from pretrain.publish.export import export_run
from pretrain.publish.export_options import ExportOptions
from pretrain.settings.overrides import ConfigError
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.check import check_workdir_path
from pretrain.workdir.errors import NotSaved, translate_write_errors
from pretrain.workdir.orbax_manager import open_manager, save_items

WRITERS = {
    "train": check_workdir_path,
    "average": lambda path: average_checkpoints("absent", path, [1]),
    "export": lambda path: export_run("absent", path, ExportOptions(format="jax")),
    "import": lambda path: import_folder("absent", path),
    "start": lambda path: start_workdir(path, *(None,) * 3),  # pyright: ignore[reportArgumentType]  # it reads none of them
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["d[1]", "a\\b", "d[1]/run", "a**"])
def test_a_pattern_is_refused_before_anything_is_read(tmp_path, name, writer):
    sign = next(sign for sign in ("\\", "[1]", "**") if sign in name)
    with pytest.raises(ConfigError) as caught:
        WRITERS[writer](str(tmp_path / name))
    assert str(caught.value) == (
        f"{tmp_path / name}: Orbax cannot save checkpoints to a path with {sign}, which is a "
        "pattern; name or rename a folder without it"
    )
    assert not list(tmp_path.iterdir())


def test_the_current_folder_and_buckets_count(tmp_path, monkeypatch):
    (tmp_path / "d[1]").mkdir()
    monkeypatch.chdir(tmp_path / "d[1]")
    for path in ("run", "gs://bucket/run[1]"):
        with pytest.raises(ConfigError, match=r"a path with \["):
            check_workdir_path(path)


@pytest.mark.parametrize("name", ["run", "d[1", "d]1[", "d[1]"])
def test_a_save_without_a_manifest_is_an_error(tmp_path, name):
    def save_step():
        with translate_write_errors(tmp_path):
            save_items(manager, 1, {"params": {"weight": np.ones(3)}}, {})
            manager.wait_until_finished()
            manager.check_for_errors()

    manager = open_manager(epath.Path(tmp_path / name), None, False)
    if name != "d[1]":
        check_workdir_path(tmp_path / name)
        save_step()
    else:
        with pytest.raises(NotSaved, match=r"Orbax wrote no manifest.ocdbt, without which"):
            save_step()
    assert (tmp_path / name / "1" / "params" / "inventory.json").exists() == (name != "d[1]")
    manager.close()
