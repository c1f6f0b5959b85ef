"""The verbs that only print: describe, report, doctor; and the program around all verbs."""

import argparse
import errno
import itertools
import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from pretrain.__main__ import VERBS, main
from pretrain.cli.verbs import explain_disk_error, import_verb, parse_arguments
from pretrain.reporting.curve_images import average_neighbours
from pretrain.reporting.curves import extract_series, list_curves
from pretrain.workdir.goodput import PHASES
from tests.started import compare_start, run_and_list_modules

SIZES = {"bert_base": 110_106_428, "t5_small": 60_506_624, "albert_base": 11_813_810}


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", SIZES)
def test_describe_gives_the_published_sizes(name, capsys):
    parameters = SIZES[name]
    assert main(["describe", name, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["parameters"] == parameters == sum(facts["parameters_by_part"].values())
    assert facts["flops"] == facts["flops_per_step"] * facts["steps"]
    about = (
        3 if name.startswith("t5") else 6
    )  # per weight and token; T5's tokens pass one of its two stacks
    uses = parameters + 11 * facts["parameters_by_part"].get(
        "albert/encoder", 0
    )  # ALBERT applies its one layer 12 times
    assert about * 0.7 < facts["flops_per_token"] / uses < about * 1.3


def test_describe_is_for_people_too(capsys):
    assert main(["describe", "bert_large"]) == 0
    output = capsys.readouterr().out
    assert "bert/encoder" in output and "302,309,376" in output and "900,000" in output


def write_rows(workdir, count=30, scores=lambda n: {}):
    workdir.mkdir()
    lines = [
        {
            "step": n,
            "loss": 9 / n,
            "masked_lm_accuracy": n / 99,
            "gradient_norm": 1.0,
            "learning_rate": 0.1,
            "tokens_per_second": 5.0,
        }
        | (
            {"heldout_loss": 8 / n, "heldout_masked_lm_accuracy": 0.5, **scores(n)}
            if n % 10 == 0
            else {}
        )
        for n in range(1, count + 1)
    ]
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def test_a_skipped_step_has_no_loss_to_draw():
    assert extract_series(
        [{"step": 1, "loss": 2.0}, {"step": 2, "loss": None}, {"step": 3, "loss": 1.0}], "loss"
    ) == ([1, 3], [2.0, 1.0])


def test_report_draws_the_curves(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    write_rows(
        tmp_path / "one", scores=lambda n: {"heldout_masked_lm": 8 / n, "heldout_mnli/f1": n / 99}
    )
    seconds = dict.fromkeys(PHASES, 0.0) | {"start": 10.0, "step": 30.0, "down": 5.0}
    ledger = {"starts": 2, "until": 0.0, "ended": True, "seconds": seconds, "marks": {}}
    (tmp_path / "one" / "goodput.json").write_text(json.dumps(ledger))
    assert main(["report", "--workdir", str(tmp_path / "one")]) == 0
    output = capsys.readouterr().out
    assert (
        "one: goodput 75.0% of 40.0 s in 2 starts: start 10.0, step 30.0, down 5.0" in output
        and "one/report/report.html" in output
    )
    page, *pictures = sorted(
        (path.name for path in (tmp_path / "one" / "report").iterdir()),
        key=lambda name: (name.endswith(".png"), name),
    )
    assert page == "report.html" and pictures == [
        *(
            "accuracy.png",
            "gradient_norm.png",
            "heldout_mnli_f1.png",
            "learning_rate.png",
            "loss.png",
            "tokens_per_second.png",
        )
    ]
    assert all(
        (tmp_path / "one" / "report" / name).read_bytes().startswith(b"\x89PNG")
        for name in pictures
    )
    assert main(["report", "--workdir", str(tmp_path / "none")]) == 2
    assert "no rows to draw" in capsys.readouterr().err


def test_the_curves_are_the_rows(tmp_path):
    lines = write_rows(tmp_path / "one")
    assert extract_series(lines, "loss") == (
        [line["step"] for line in lines],
        [line["loss"] for line in lines],
    )
    assert extract_series(lines, "heldout_loss")[0] == [10, 20, 30]
    assert list_curves(lines)[1][:4] == (
        "accuracy.png",
        "accuracy",
        "masked_lm_accuracy",
        "heldout_masked_lm_accuracy",
    )
    assert average_neighbours([3.0] * 200) == (25, pytest.approx([3.0] * 150))
    line = [float(i) for i in range(200)]  # a centred mean of a line is the line
    assert average_neighbours(line) == (25, pytest.approx(line[25:-25]))
    step = average_neighbours([0.0] * 100 + [1.0] * 100)[1]
    assert step[49] == 0 and step[74] == pytest.approx(25 / 51) and step[100] == 1
    assert average_neighbours([2.0]) == (0, [2.0])


def test_doctor(tmp_path, capsys):
    assert main(["doctor", "--workdir", str(tmp_path / "new")]) == 0
    output = capsys.readouterr().out
    assert (
        "cpu: 8 devices" in output
        and "can be written" in output
        and output.endswith("all is well\n")
    )
    assert list((tmp_path / "new").iterdir()) == []


def test_help_names_every_verb_and_imports_little(root, tmp_path):
    done, modules = run_and_list_modules(["--help"], root, tmp_path)
    assert done.returncode == 0 and len(modules) < 170 and "numpy" not in modules
    assert compare_start(["--help"], root) < 1
    output = done.stdout
    assert all(f"\n  {verb} " in output for verb in VERBS)


def test_help_begins_with_a_first_run_and_groups_the_verbs(capsys):
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(len(line) <= 80 for line in output.splitlines())
    first, *groups = re.split(r"\n\n(?=Start\n|Train\n|Use\n|Look inside\n|Clusters\n)", output)
    assert "Start here" in first and "describe --list" in groups[-1]
    commands = re.findall(r"^  python -m pretrain (.*)$", first, re.MULTILINE)
    assert [shlex.split(words)[0] for words in commands] == [
        "prepare",
        "inspect",
        "train",
        "predict",
    ]
    for words in commands:
        verb, *rest = shlex.split(words)
        parse_arguments(verb, rest)
    names = [re.findall(r"^  ([\w-]+)  ", group, re.MULTILINE) for group in groups]
    assert len(names) == 5 and sorted(itertools.chain(*names)) == sorted(VERBS)
    assert [group[0] for group in names] == ["prepare", "train", "evaluate", "report", "plan"]


@pytest.mark.held_by(4)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capsys):
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0
    assert f"python -m pretrain {verb}" in capsys.readouterr().out


@pytest.mark.held_by(1)
@pytest.mark.parametrize("verb", ["train", "plan", "inspect", "describe", "distil"])
def test_help_of_a_configuration_points_to_the_list(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert "`describe --list` shows all" in " ".join(capsys.readouterr().out.split())


def test_help_of_finetune_names_all_models_that_it_takes(capsys):
    with pytest.raises(SystemExit):
        main(["finetune", "--help"])
    printed = capsys.readouterr().out
    for name in ("Albert", "Bert", "DistilBert", "Electra", "Roberta", "Bart", "T5"):
        assert f"{name}Config" in printed


def test_a_verb_that_is_not_there(capsys):
    assert main(["trian"]) == 2
    assert "no verb 'trian': did you mean train?" in capsys.readouterr().err
    assert main([]) == 2


def test_a_reader_of_the_output_may_close_it_early(root):
    command = f"{sys.executable} -m pretrain describe bert_tiny | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, text=True)
    assert done.stdout.startswith("BERT-tiny") and "rror" not in done.stderr


@pytest.mark.parametrize(
    ("verb", "before", "option"),
    [
        ("report", [], "--workdir"),
        ("glue", ["run"], "--test"),
        ("average", ["--workdir", "w", "--output", "o"], "--steps"),
        ("attention", ["--workdir", "w", "--output", "o"], "--layers"),
        ("features", ["--workdir", "w", "--input", "i", "--output", "o"], "--layers"),
    ],
)
def test_an_option_that_is_given_twice_keeps_both(verb, before, option):
    parser = argparse.ArgumentParser()
    import_verb(verb).add_arguments(parser)
    given = getattr(parser.parse_args([*before, option, "1", "2", option, "3"]), option.strip("-"))
    assert [str(value) for value in given] == ["1", "2", "3"]


def test_json_is_printed_by_one_function():
    """`json.dumps` writes NaN, which is no JSON; `format_json` writes null."""
    for verb in VERBS:
        path = pathlib.Path(import_verb(verb).__file__)
        assert "json.dump" not in path.read_text(), f"{path}: use data.corpus.json_lines"


def test_a_disk_error_without_a_name_gets_that_of_the_output():
    args = argparse.Namespace(workdir="runs/a", output="page.html", images=None)
    full = OSError(errno.ENOSPC, "No space left on device")
    assert (
        explain_disk_error(full, args) == "page.html: No space left on device, while it was written"
    )
    assert explain_disk_error(OSError(errno.ENOSPC, "No space", "named"), args) == ""
    assert explain_disk_error(OSError(errno.EACCES, "denied"), args) == ""
    assert explain_disk_error(ValueError("No space left on device"), args) == ""
