"""`describe` prints the resolved run and the meaning of each key; it writes docs/configuration.md."""

import itertools
import json
import pathlib
import re

import pytest

from pretrain.__main__ import main
from pretrain.cli import recipes
from pretrain.cli.field_pages import MARKER, format_index, format_page, group_sections
from pretrain.cli.generated_page import update_page
from pretrain.config import CONFIGS, SECTION_CLASSES, list_names
from pretrain.settings.overrides import ConfigError
from tests.started import compare_start, run_and_list_modules

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
@pytest.mark.held_by(1)
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


def test_configurations_are_listed_by_family_without_jax(root, tmp_path):
    done, modules = run_and_list_modules(["describe", "--list"], root, tmp_path)
    assert done.returncode == 0 and len(modules) < 600
    assert compare_start(["describe", "--list"], root) < 4
    *groups, end = done.stdout.split("\n\n")
    listed = {group.splitlines()[0]: group.splitlines()[1:] for group in groups}
    names = {title: [line.split()[0] for line in lines] for title, lines in listed.items()}
    assert sorted(itertools.chain(*names.values())) == list_names()
    assert names["BERT encoder"][:2] == ["bert_base", "bert_large"]
    assert names["GPT-3 decoder"][0] == "gpt3_125m" and names["Recurrent classifier"]
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert all(len(line.split()) > 2 for line in itertools.chain(*listed.values()))
    assert "describe NAME" in end


def test_the_list_has_one_json_object_for_each_configuration(capsys):
    assert main(["describe", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["name"] for row in rows) == list_names()
    [row] = [row for row in rows if row["name"] == "bert_base"]
    assert row["family"] == "BERT encoder" and row["summary"].startswith("BERT-base (Devlin")


def test_the_recipe_of_a_configuration_comes_first(tmp_path, capsys):
    path = tmp_path / "mine.py"
    text = (CONFIGS / "bert_tiny.py").read_text().partition('"""\n')[2]
    path.write_text('"""My run.\n\n    python -m pretrain train mine\n"""\n' + text)
    assert main(["describe", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("My run.\n\n    python -m pretrain train mine\n\n" + str(path))
    path.write_text(text)
    assert main(["describe", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: BertConfig")


def test_commands_of_a_recipe_are_those_of_the_installation(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recipes, "PROGRAM", "cloze")
    path = tmp_path / "mine.py"
    path.write_text('"""My run.\n\n    python -m pretrain train mine\n"""\n')
    recipes.print_recipe(path)
    assert capsys.readouterr().out == "My run.\n\n    cloze train mine\n\n"


def test_an_unknown_configuration_is_answered_by_one_name(capsys):
    assert main(["describe", "bert_bsae"]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'bert_base'?" in error and "describe --list" in error
    assert len(error) < 200 and "albert_tiny" not in error


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
    [
        ([], "name a configuration (--list shows all), or add"),
        (["bert_tiny", "--page", "x.md"], "add one of them"),
        (["bert_tiny", "--list"], "leave bert_tiny out"),
        (["--list", "--fields"], "leave --fields out"),
        (["bert_tiny", "--fields", "--page", "x.md"], "leave bert_tiny out"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    assert main(["describe", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_page_of_recipes_is_current():
    _, marker, text = (PAGE.parent / "recipes.md").read_text().partition(recipes.MARKER)
    assert marker and text.strip() == recipes.format_page(recipes.group_recipes()).strip(), (
        "run: python -m pretrain describe --list --page docs/recipes.md"
    )


def test_each_recipe_has_a_summary_and_the_command_that_trains_it():
    for name in list_names():
        summary, *body = recipes.read_recipe(CONFIGS / f"{name}.py").splitlines()
        assert summary.endswith(".") and body[0] == "", name
        trained = rf"^    python -m pretrain (train {name} |finetune --config {name} )"
        assert any(re.match(trained, line) for line in body), name


def test_only_the_part_below_the_marker_of_the_recipes_is_written(tmp_path):
    page = tmp_path / "recipes.md"
    page.write_text(f"by hand\n{recipes.MARKER}\nold")
    assert main(["describe", "--list", "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"by hand\n{recipes.MARKER}\n\n## ALBERT encoder\n\n### albert_base")
    assert "(../benchmarks/results/bert_mini.md)" in text and "old" not in text.split("##")[0]
    assert "    ./launch.sh train bert_base --workdir" in text and "python -m" not in text[200:]


def test_the_pages_of_all_fields_are_current():
    _, marker, index = PAGE.read_text().partition(MARKER)
    written = {PAGE.name: index}
    written |= {path.name: path.read_text() for path in PAGE.with_suffix("").iterdir()}
    made = {PAGE.name: format_index(PAGE.stem)}
    made |= {
        f"{page.name}.md": format_page(page, kinds) for page, kinds in group_sections().items()
    }
    assert marker and {name: text.strip() for name, text in written.items()} == {
        name: text.strip() for name, text in made.items()
    }, "run: python -m pretrain describe --fields --page docs/configuration.md"


def test_the_pages_are_written_below_the_marker_and_into_a_folder(tmp_path):
    page = tmp_path / "keys.md"
    page.write_text(f"by hand\n{MARKER}\nold")
    assert main(["describe", "--fields", "--page", str(page)]) == 0
    assert page.read_text().startswith(f"by hand\n{MARKER}\n\n## Sections")
    assert "(keys/train.md#guard)" in page.read_text()
    models = (tmp_path / "keys" / "text_models.md").read_text()
    assert models.startswith("# Models of text\n") and models.count("compile one layer") == 1


def test_every_section_of_a_run_is_on_one_page():
    groups = group_sections()
    kinds = list(itertools.chain(*groups.values()))
    assert sorted(kind.__name__ for kind in kinds) == sorted(SECTION_CLASSES.keys() - {"Run"})
    names = {page.name: {kind.__name__ for kind in kinds} for page, kinds in groups.items()}
    assert names["image_models"] >= {"VitConfig", "LenetConfig", "Pixels"}
    assert names["data"] >= {"Data", "MaskedLm", "Mixed", "MixedPart"}
    assert names["tasks"] >= {"Tagging", "Text2Text"} and names["evaluate"] >= {"Limits"}


def test_the_first_table_of_a_page_has_each_name_once():
    for page, kinds in group_sections().items():
        shared = format_page(page, kinds).partition("## Shared fields")[2].partition("\n## ")[0]
        names = re.findall(r"^\| (`\w+`) \|", shared, re.MULTILINE)
        assert len(names) == len(set(names)), page.name


def test_a_field_that_sections_share_is_described_once_with_the_default_of_each():
    page = next(page for page in group_sections() if page.name == "text_models")
    text = format_page(page, group_sections()[page])
    shared, *sections = re.split(
        r"^## ", text.partition("## Shared fields\n")[2], flags=re.MULTILINE
    )
    assert "| `width` | int | width of the hidden states |" in shared
    [gpt2] = [section for section in sections if section.startswith("Gpt2Config\n")]
    assert "[Shared](#shared-fields):" in gpt2 and "`vocab=50257`" in gpt2
    assert "| `vocab` |" not in gpt2 and text.count("| `vocab` |") < 5


def test_only_the_text_after_the_marker_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"by hand\n{MARKER}\nold")
    update_page(page, MARKER, "| new |\n")
    assert page.read_text() == f"by hand\n{MARKER}\n\n| new |\n"
    page.write_text("by hand")
    with pytest.raises(ConfigError, match="page.md has no line <!-- Below"):
        update_page(page, MARKER, "| new |\n")


def test_the_parameters_of_a_teacher_are_counted_apart(capsys):
    assert main(["describe", "distilbert_base", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["parameters"] == 66_985_530  # as transformers' DistilBertForMaskedLM has
    assert facts["parameters"] == sum(facts["parameters_by_part"].values())
    assert not any(name.startswith("teacher") for name in facts["parameters_by_part"])
    assert facts["teacher_parameters"] > 1.6 * facts["parameters"]
    assert main(["describe", "bert_tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["teacher_parameters"] == 0


def count_apart(capsys, *words):
    assert main(["describe", *words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    total = facts["parameters"] + facts["teacher_parameters"]
    assert facts["trained_parameters"] + facts["frozen_parameters"] == total
    return facts


def test_trained_and_frozen_parameters_are_counted_apart(capsys):
    """All frozen ones are counted: a teacher's, a model's own, and lower layers in fine-tuning."""
    facts = count_apart(capsys, "distilbert_base")
    assert facts["trained_parameters"] == 66_985_530
    assert facts["frozen_parameters"] == facts["teacher_parameters"]
    facts = count_apart(capsys, "bert_tiny")
    assert facts["frozen_parameters"] == 0
    facts = count_apart(
        capsys, "textcnn", "model.encoder.channels=static", "model.encoder.vocab=99"
    )
    assert facts["frozen_parameters"] == 99 * 300 and facts["teacher_parameters"] == 0
    assert main(["describe", "textcnn", "model.encoder.channels=static"]) == 0
    assert "  frozen " in capsys.readouterr().out


@pytest.mark.parametrize("scan", ["true", "false"])
def test_the_lower_layers_of_a_fine_tuned_encoder_are_frozen(scan, capsys):
    words = [
        *("textcnn", "model.encoder=bertconfig", "model.encoder.vocab=99", "model.encoder.width=8"),
        *("model.encoder.mlp=16", "model.encoder.num_heads=2", "model.encoder.depth=4"),
        f"model.encoder.scan={scan}",
    ]
    every = count_apart(capsys, *words)
    assert every["frozen_parameters"] == 0
    heads, top, two = (
        count_apart(capsys, *words, f"train.trainable_layers={count}")["trained_parameters"]
        for count in (0, 1, 2)
    )
    layer = 4 * (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8) + 4 * 8
    assert top - heads == two - top == layer
    embeddings = 8 * (99 + 512 + 2) + 2 * 8
    assert every["parameters"] - heads == 4 * layer + embeddings
