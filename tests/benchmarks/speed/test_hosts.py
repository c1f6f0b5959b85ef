"""The processes of benchmarks/speed/hosts.py end well, or the benchmark ends with their status."""

import json

import pytest

from benchmarks.speed import hosts
from pretrain.cli import local
from pretrain.processes.restarts import Ending

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(("status", "code"), [(0, 0), (75, 75), (-9, 137)])
def test_the_reports_are_read_unless_a_process_fails(status, code, tmp_path, monkeypatch):
    def write_reports(count, devices, argv):
        for i in range(count):
            (tmp_path / f"facts.{i}").write_text(json.dumps({"process": i}))
        return Ending(status)

    monkeypatch.setattr(local, "run_processes", write_reports)
    if code:
        with pytest.raises(SystemExit) as ended:
            hosts.run_processes(2, ["train"], tmp_path / "facts")
        assert ended.value.code == code
    else:
        facts = hosts.run_processes(2, ["train"], tmp_path / "facts")
        assert facts == [{"process": 0}, {"process": 1}]
