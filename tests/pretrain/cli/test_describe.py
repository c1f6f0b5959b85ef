"""`describe` prints the resolved run and the meaning of each key; it writes docs/configuration.md."""

import json
import pathlib

import pytest

from pretrain.__main__ import main
from pretrain.cli.describe import MARKER, render_page, update_page
from pretrain.config import SECTION_CLASSES, Run
from pretrain.fields import list_field_notes, list_sections
from pretrain.overrides import ConfigError

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_whole_run_is_printed_and_what_differs_is_marked(capsys):
    assert main(["describe", "bert_tiny", "train.seed=7", "optimizer=lamb"]) == 0
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()]
    assert ["seed", "7", "*", "default", "0"] in lines
    assert ["optimizer", "Lamb", "*", "default", "AdamW"] in lines
    assert ["beta1", "0.9"] in lines and ["prefetch", "2"] in lines
    assert "describe --fields" in printed.out
    assert printed.err.startswith("optimizer=lamb drops optimizer.learning_rate=0.001")


# Parameters, and multiply-adds of an image in the forward pass: Touvron et al. 2021, table 1 (Ti, S,
# B); for the sums, tests/models/test_vit.py.
@pytest.mark.parametrize(
    ("config", "parameters", "giga_multiplies"),
    [
        ("vit_tiny", 5_717_416, 1.3),
        ("vit_small", 22_050_664, 4.6),
        ("vit_base", 86_567_656, 17.6),
        ("vit_large", 304_326_632, 61.6),
    ],
)
def test_runs_of_images_count_images(config, parameters, giga_multiplies, capsys):
    assert main(["describe", config, "data.batch_size=8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    numbers = {line[:30].strip(): line[30:].strip() for line in lines}
    assert numbers["parameters"] == f"{parameters:,}" and numbers["images per step"] == "8"
    flops = float(numbers["flops per image"].replace(",", ""))
    assert flops / 6e9 == pytest.approx(giga_multiplies, rel=0.06)  # 2 each, forward and backward
    assert "tokens per step" not in numbers and "flops per token" not in numbers


def test_every_key_is_listed_with_type_unit_default_and_meaning(capsys):
    assert main(["describe", "--fields"]) == 0
    text = capsys.readouterr().out
    assert (
        "  optimizer.warmup_steps: an int, default 10000 steps\n      Length of the linear warmup"
        in text
    )
    assert "  model.depth, model.encoder.depth: an int, default 12" in text
    assert main(["describe", "--fields", "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)
    assert {note["section"] for note in notes} == SECTION_CLASSES.keys()
    [note] = [one for one in notes if one["keys"] == ["watchdog.save"]]
    assert note == {
        "keys": ["watchdog.save"],
        "section": "Limits",
        "type": "a number",
        "default": "3600.0",
        "unit": "seconds",
        "meaning": "Saving one checkpoint and deleting old ones.",
    }


def test_the_keys_of_one_configuration_are_listed(capsys):
    assert main(["describe", "--fields", "albert_tiny", "optimizer=adafactor"]) == 0
    text = capsys.readouterr().out
    assert "  model.embedding: an int" in text and "optimizer.clipping_threshold" in text
    assert "beta1" not in text and "model.encoder" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "name a configuration, or add"), (["bert_tiny", "--page", "x.md"], "add --fields")],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    assert main(["describe", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_page_of_all_fields_is_current():
    sections = list_sections(Run)
    notes = {kind: list_field_notes(kind, places) for kind, places in sections.items()}
    _, marker, tables = PAGE.read_text().partition(MARKER)
    assert marker and tables.strip() == render_page(sections, notes).strip(), (
        "run: python -m pretrain describe --fields --page docs/configuration.md"
    )


def test_only_the_text_after_the_marker_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"by hand\n{MARKER}\nold")
    update_page(page, "| new |\n")
    assert page.read_text() == f"by hand\n{MARKER}\n\n| new |\n"
    page.write_text("by hand")
    with pytest.raises(ConfigError, match="page.md has no line <!-- Below"):
        update_page(page, "| new |\n")


def test_the_parameters_of_a_teacher_are_counted_apart(capsys):
    assert main(["describe", "distilbert_base", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["parameters"] == 66_985_530  # as transformers' DistilBertForMaskedLM has
    assert facts["parameters"] == sum(facts["parameters_by_part"].values())
    assert not any(name.startswith("teacher") for name in facts["parameters_by_part"])
    assert facts["teacher_parameters"] > 1.6 * facts["parameters"]
    assert main(["describe", "bert_tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["teacher_parameters"] == 0
