"""`train --prometheus FILE.prom` writes valid text of Prometheus, and only whole files."""

import math
import re
import threading

import pytest

from pretrain.__main__ import main
from pretrain.training.monitoring.prometheus import PrometheusFile, format_exposition
from pretrain.workdir.metrics_file import read_metrics

SHORT = ["train.stop_at_step=4", "evaluate.every=2"]
SERIES = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_]\w*=\"(?:\\[\\n\"]|[^\\\"\n])*\",?)*)\} (\S+)"
)
ESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


def parse_exposition(text):
    """Return {(name, labels): value} of the text format, which is checked line by line."""
    assert text.endswith("\n")
    series, families, family = {}, [], None
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert kind == "gauge" and family not in families
            families.append(family)
            continue
        match = SERIES.fullmatch(line)
        assert match and match[1] == family, line
        labels = {
            name: re.sub(r"\\.", lambda found: ESCAPED[found[0]], value)
            for name, value in re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', match[2])
        }
        key = (family, tuple(sorted(labels.items())))
        assert key not in series
        series[key] = float(match[3])
    return series


def test_a_run_leaves_its_last_row(configs, tmp_path):
    workdir, path = tmp_path / "run", tmp_path / "cloze.prom"
    command = ["train", str(configs["bert"]), "--workdir", str(workdir), *SHORT]
    assert main([*command, "--prometheus", str(path)]) == 0
    values = {name: value for (name, _), value in parse_exposition(path.read_text()).items()}
    last = read_metrics(workdir / "metrics.jsonl")[-1]
    assert last["step"] == 4 and "heldout_loss" in last
    for key, value in last.items():
        assert values[f"cloze_{key}"] == value
    assert all(
        labels == (("workdir", str(workdir)),) for _, labels in parse_exposition(path.read_text())
    )
    assert [file.name for file in tmp_path.iterdir() if "prom" in file.name] == ["cloze.prom"]
    before = (workdir / "config.json").read_text()
    assert main([*command, "train.stop_at_step=5"]) == 0  # The file is no part of the run.
    assert "prom" not in before


AWKWARD = {
    "loss": math.nan, "gradient_norm": math.inf, "learning_rate": -math.inf,
    "heldout_mnli/f1": 0.5, "heldout_mnli.f1": 0.25, "heldout_mnli_f1": 1e-30, "step": 12,
    'k"\\\n\u00e9': 3.0,
}  # fmt: skip
WORKDIR = 'runs/a "b"\\c\nd\u00e9,e="f"'


def test_awkward_names_and_labels_are_read_back():
    series = parse_exposition(format_exposition(AWKWARD, {"workdir": WORKDIR}))
    assert len(series) == len(AWKWARD)
    found = {
        dict(labels).get("key", name.removeprefix("cloze_")): value
        for (name, labels), value in series.items()
    }
    assert found == pytest.approx(AWKWARD, nan_ok=True)
    assert all(dict(labels)["workdir"] == WORKDIR for _, labels in series)


def test_prometheus_own_parser_reads_the_same():
    parser = pytest.importorskip("prometheus_client.parser")
    text = format_exposition(AWKWARD, {"workdir": WORKDIR})
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples == pytest.approx(parse_exposition(text), nan_ok=True)


def test_a_reader_never_sees_a_part_of_a_file(tmp_path):
    path, stop, seen = tmp_path / "a.prom", threading.Event(), []
    file = PrometheusFile(path, "w" * 20_000, print, seconds=0)
    file.write_row({"step": 0, "loss": 0.0})

    def read_often():
        while not stop.is_set():
            seen.append(len(parse_exposition(path.read_text())))

    reader = threading.Thread(target=read_often)
    reader.start()
    for step in range(300):
        file.write_row({"step": step, "loss": 1.0})
    stop.set()
    reader.join()
    assert set(seen) == {3} and len(seen) > 10


def test_rows_that_follow_closely_are_written_once_and_the_last_always(tmp_path):
    path = tmp_path / "a.prom"
    file = PrometheusFile(path, "w", print, seconds=3600)
    for step in (1, 2, 3):
        file.write_row({"step": step, "name": "text"})
    assert "cloze_step{" in path.read_text() and " 1\n" in path.read_text()
    file.close("finished")
    assert parse_exposition(path.read_text())["cloze_step", (("workdir", "w"),)] == 3


def test_a_folder_that_vanishes_does_not_stop_the_run(tmp_path):
    messages = []
    file = PrometheusFile(tmp_path / "gone" / "a.prom", "w", messages.append, seconds=0)
    for step in (1, 2):
        file.write_row({"step": step})
    file.close("finished")
    assert len(messages) == 2 and "the run continues" in messages[0]
    assert messages[1].endswith("could not be written 3 times")


@pytest.mark.parametrize(
    ("name", "message"),
    [("metrics.txt", "expected a file NAME.prom"), ("none/a.prom", "there is no folder")],
)
def test_a_bad_path_is_refused_before_anything_is_written(configs, tmp_path, capsys, name, message):
    command = ["train", str(configs["bert"]), "--workdir", str(tmp_path / "run"), *SHORT]
    assert main([*command, "--prometheus", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
