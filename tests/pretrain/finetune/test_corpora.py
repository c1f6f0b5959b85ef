"""GLUE's files of ../shared are read under their names; skipped where they do not exist."""

import pytest

from data.examples import labelled_examples
from pretrain.finetune.labelled_task import find_columns, order_labels
from pretrain.finetune.tasks import TASKS

FILES = [
    ("cola", "glue_cola/dev_in.jsonl", 527, ("0", "1")),
    ("sst2", "glue_sst2/dev.jsonl", 872, ("0", "1")),
    ("mrpc", "glue_mrpc/test.jsonl", 1725, ("0", "1")),
    ("rte", "glue_rte/dev.jsonl", 277, ("entailment", "not_entailment")),
    ("stsb", "glue_stsb/test.jsonl", 1379, ()),
]


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("name", "path", "count", "names"), FILES)
def test_they_are_read(corpora, name, path, count, names):
    task, source = TASKS[name], str(corpora / path)
    read = labelled_examples.read_examples(source, find_columns(task, source), task.label)
    assert (
        len(read) == count
        and (order_labels(task, labelled_examples.list_classes(read)) if names else ()) == names
    )
    assert names or all(0 <= example.label <= 5 for example in read)
