"""The named tasks define their columns and labels; errors name the file and the line."""

import json
from types import SimpleNamespace

import pytest

from data.examples.labelled_examples import Columns, read_records
from pretrain.finetune.labelled_task import find_columns, order_labels
from pretrain.finetune.tasks import TASKS, LabelTask

pytestmark = pytest.mark.fast


def test_the_nine_glue_tasks_define_their_columns(tmp_path):
    nine = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"}
    assert nine == {
        name for name, task in TASKS.items() if isinstance(task, LabelTask) and task.tfds
    }
    assert {name for name in nine if len(TASKS[name].columns[0].texts) == 1} == {"cola", "sst2"}
    path = tmp_path / "train.tsv"
    path.write_text("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\ta\tb\n")
    assert find_columns(TASKS["mrpc"], str(path)) == Columns(("#1 String", "#2 String"), "Quality")
    assert order_labels(TASKS["mrpc"], ("equivalent", "not_equivalent")) == (
        "not_equivalent",
        "equivalent",
    )
    assert order_labels(TASKS["mrpc"], ("0", "1")) == ("0", "1")


def test_colas_own_files_have_no_line_of_names(tmp_path):
    path, args = tmp_path / "train.tsv", make_arguments("cola")
    path.write_text(
        'gj04\t1\t\t"Our friends won\'t buy it.\nbc01\t0\t*\tThey said "so.\ngj04\t1\t\tThe fox, he sleeps.\n'
    )
    found = TASKS["cola"].read_examples(args, str(path), str(path), 0.1)
    example_fields = [(*one.texts, one.label, one.location) for one in found.parts["train"]]
    assert example_fields == [
        ("\"Our friends won't buy it.", "1", f"{path}:1"),
        ('They said "so.', "0", f"{path}:2"),
        ("The fox, he sleeps.", "1", f"{path}:3"),
    ]
    path.write_text("source\tlabel\tmark\tsentence\ngj04\t1\t\tA fox.\n")
    assert [record for _, record in read_records(str(path))] == [
        {"source": "gj04", "label": "1", "mark": "", "sentence": "A fox."}
    ]


GOOD = [{"text": "a fox", "label": "x"}, {"text": "a dog", "label": "y"}] * 4
PAIRED = {"text": "a fox", "text2": "a dog", "label": "x"}


def make_nli_rows(*labels):
    return [{"premise": "a", "hypothesis": "b", "label": label} for label in labels]


@pytest.mark.parametrize(
    ("task", "train", "heldout", "options", "message"),
    [
        ("mnli", make_nli_rows("entailment", "neutral", "-"), GOOD, {},
         "train.jsonl:3: the label '-' is not one of mnli, whose labels are 'entailment', 'neutral', "),
        ("rte", make_nli_rows("entailmnt"), GOOD, {},
         "train.jsonl:1: the label 'entailmnt' is not one of rte, .* 'not_entailment', or in all lines 0, 1: remove"),
        ("rte", make_nli_rows(0, "entailment"), GOOD, {}, "train.jsonl:2: the label 'entailment' is not one of rte"),
        ("rte", make_nli_rows(-1, -1), GOOD, {}, "train.jsonl:1: the label '-1' is not one of rte"),
        ("rte", make_nli_rows(0, None), GOOD, {},
         "train.jsonl:2: column 'label': None is not the name of a class, .*; test splits of a benchmark have no labels"),
        ("rte", make_nli_rows("x", "y"), make_nli_rows("z"), {"labels": "x,y"},
         "dev.jsonl:1: the label 'z' is not one of 'x', 'y'"),
        ("stsb", [{"sentence1": "a", "sentence2": "b", "label": -1.0}], GOOD, {},
         "train.jsonl:1: column 'label': -1.0 is not a score from 0 to 5"),
        ("classification", [*GOOD, PAIRED], GOOD, {},
         "train.jsonl:9: a column 'text2', where the first .* only text,label: .* --columns text,label"),
        ("classification", GOOD, [*GOOD, PAIRED], {}, "dev.jsonl:9: a column 'text2'"),
        ("classification", [*GOOD, PAIRED], [PAIRED | {"label": "z"}], {"columns": "text,label"},
         "dev.jsonl:1: the label 'z' is not one of"),
    ],
)  # fmt: skip
def test_unknown_columns_and_labels_of_a_task_are_refused(
    tmp_path, task, train, heldout, options, message
):
    files = [tmp_path / "train.jsonl", tmp_path / "dev.jsonl"]
    for file, rows in zip(files, (train, heldout)):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = make_arguments(task, **options)
    with pytest.raises(ValueError, match=message):
        TASKS[task].read_examples(args, *map(str, files), 0.1)


def make_arguments(task, **options):
    defaults = dict.fromkeys(("columns", "labels", "prefix", "scheme"))
    return SimpleNamespace(
        **{"task": task, "on_bad_example": "refuse", "file_format": None} | defaults | options
    )


def make_choice(label):
    return {"context": "a", "choices": ["b", "c"], "label": label}


@pytest.mark.parametrize(
    ("task", "train", "heldout", "options", "counts"),
    [
        ("mnli", ["entailment", "-", "neutral", 3], ["-", "neutral"], {}, (2, 1)),
        ("rte", [0, "entailment", 1], [1, "?", 0], {}, (1, 1)),
        ("rte", ["x", "y", "z"], ["z", "x"], {"labels": "x,y"}, (1, 1)),
        ("rte", [0, 1], [0], {}, (0, 0)),
        ("tagging", [["O", "B-a"], ["O", 3.5]], [["O", "B-b"], ["B-a", "O"]], {}, (1, 1)),
        ("multiple_choice", [0, 1, 2], [2, 1], {}, (1, 1)),
        ("text2text", ["x", "y", ""], [None, "x"], {}, (1, 1)),
        ("stsb", [0, 5, -1], [2, "x", 6], {}, (1, 2)),
    ],
)
def test_bad_examples_are_left_out_and_counted(
    tmp_path, capsys, task, train, heldout, options, counts
):
    """In the file for training and in the held-out one; without the flag the first is refused."""
    make_row = {
        "tagging": lambda tags: {"words": ["a", "b"], "tags": tags},
        "multiple_choice": make_choice,
        "text2text": lambda target: {"source": "a", "target": target},
        "stsb": lambda label: {"sentence1": "a", "sentence2": "b", "label": label},
    }.get(task, lambda label: make_nli_rows(label)[0])
    files = [tmp_path / "train.jsonl", tmp_path / "dev.jsonl"]
    for file, values in zip(files, (train, heldout)):
        file.write_text("".join(json.dumps(make_row(value)) + "\n" for value in values))
    if any(counts):
        with pytest.raises(ValueError, match="--on-bad-example skip leaves such examples out"):
            TASKS[task].read_examples(make_arguments(task, **options), *map(str, files), 0.1)
    args = make_arguments(task, on_bad_example="skip", **options)
    examples = TASKS[task].read_examples(args, *map(str, files), 0.1)
    lines = capsys.readouterr().err.splitlines()
    for file, values, part, count in zip(files, (train, heldout), ("train", "heldout"), counts):
        assert len(examples.parts[part]) == len(values) - count
        lines_of_file = [
            line for line in lines if line.startswith(f"{file}: skipped {count} bad examples")
        ]
        assert len(lines_of_file) == bool(count)
