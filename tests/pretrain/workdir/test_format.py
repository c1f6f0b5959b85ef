"""The format number of a workdir: another one is refused in one line with a remedy."""

import json

import pytest

from pretrain.__main__ import main
from pretrain.config import FORMAT, from_json, load, to_json
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.check import check_workdir_path


def write_config(workdir, found):
    """Write a config.json whose format is `found`, None for no number."""
    tree = json.loads(to_json(load("bert_tiny")))
    assert tree.pop("format") == FORMAT
    workdir.mkdir()
    tree = tree if found is None else {"format": found, **tree}
    (workdir / "config.json").write_text(json.dumps(tree))


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (None, "has no format number"),
        (FORMAT + 1, f"has format {FORMAT + 1}"),
        (FORMAT - 1, f"has format {FORMAT - 1}"),
        (str(FORMAT), f"has format '{FORMAT}'"),
    ],
)
@pytest.mark.parametrize(
    "verb",
    [
        "train bert_tiny --workdir {0}",
        "train {0}/config.json --workdir {0}",
        "describe {0}/config.json",
    ],
)
def test_a_workdir_of_another_format_is_refused_in_one_line(tmp_path, capsys, verb, found, named):
    write_config(tmp_path / "run", found)
    assert main(verb.format(tmp_path / "run").split()) == 2
    printed = capsys.readouterr()
    [line] = printed.err.splitlines()
    assert f"{tmp_path}/run/config.json {named}, and this version of Cloze reads" in line
    assert "export the workdir with the version that wrote it, and import that folder" in line
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]
    assert printed.out == ""


def test_it_is_refused_before_jax_is_imported(tmp_path):
    write_config(tmp_path / "run", None)
    with pytest.raises(ConfigError, match="run/config.json has no format number"):
        check_workdir_path(tmp_path / "run")


def test_a_report_only_looks(tmp_path):
    """It reads the curves of any format, and shows the format with the settings."""
    write_config(tmp_path / "run", FORMAT + 1)
    row = {"step": 1, "loss": 2.0, "tokens_per_second": 5.0}
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert main(["report", "--workdir", str(tmp_path / "run")]) == 0
    page = next((tmp_path / "run").rglob("*.html")).read_text()
    assert f'"format": {FORMAT + 1}' in page or f'"format":{FORMAT + 1}' in page


@pytest.mark.parametrize("content", ['{"type": "R', "[]", '{"a": ' + "1" * 5000 + "}", "[" * 10**5])
@pytest.mark.parametrize("verb", ["report", "evaluate"])
def test_a_damaged_configuration_is_an_error_of_one_line_with_its_name(
    tmp_path, capsys, verb, content
):
    (tmp_path / "config.json").write_text(content)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    assert main([verb, "--workdir", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}/config.json: not ")


@pytest.mark.parametrize("content", ['{"runs": {"se', "{}", '{"runs": {}}', "[]", "[" * 10**5])
def test_damaged_scores_of_seeds_are_an_error_with_their_name(tmp_path, capsys, content):
    (tmp_path / "scores.json").write_text(content)
    assert main(["glue", str(tmp_path)]) == 2
    assert f"error: {tmp_path}/scores.json: n" in capsys.readouterr().err


def test_a_folder_without_a_run_has_no_format():
    with pytest.raises(ConfigError, match="here: not a saved configuration"):
        from_json('{"type": "Train"}', where="here")
