"""The tasks on which pretraining is measured downstream, and their files."""

import json
from typing import NamedTuple

from data.examples.labelled import records

EPOCHS = 3


class Task(NamedTuple):
    """kind: finetune's --task; train, heldout, also: files of the corpora; renamed: columns of theirs that `kind` has other names for.

    heldout: None for a tenth of `train`. also: a further labelled file, on which the step that is best on `heldout` is scored.
    length: of a row. more: further settings. epochs: of which the best is told; of one it is that one.
    """

    kind: str
    train: str
    heldout: str | None
    length: int
    also: str | None = None
    renamed: dict[str, str] = {}
    more: tuple[str, ...] = ()
    epochs: int = EPOCHS


# On a CPU half the time of float32 with the layers as the encoder has them; both starts alike.
LEAN = ("train.compute_dtype=bfloat16", "model.encoder.scan=false")
# In the order in which they are run: the cheaper ones first.
TASKS = {
    "CoLA": Task(
        "cola", "glue_cola/train.jsonl", "glue_cola/dev_in.jsonl", 24, "glue_cola/dev_out.jsonl"
    ),
    "RTE": Task("rte", "glue_rte/train.jsonl", "glue_rte/dev.jsonl", 96),
    "SST-2": Task(
        *(
            "sst2",
            "cls_sentconv/sst2_train_sents.jsonl",
            "glue_sst2/dev.jsonl",
            48,
            "cls_sentconv/sst2_test.jsonl",
        ),
        renamed={"text": "sentence"},
    ),
    "WNUT-17": Task(
        "tagging", "ner_wnut17/train.conll", "ner_wnut17/dev.conll", 64, "ner_wnut17/test.conll"
    ),
    "MRPC": Task("mrpc", "glue_mrpc/train.jsonl", "glue_mrpc/test.jsonl", 96, more=LEAN),
    "STS-B": Task(
        "stsb",
        "glue_stsb/train.jsonl",
        "glue_stsb/dev.jsonl",
        48,
        "glue_stsb/test.jsonl",
        more=LEAN,
    ),
    "MR": Task("classification", "cls_sentconv/mr.jsonl", None, 48, more=LEAN),
    "QAMR": Task(
        *("squad", "qa_qamr/train_from_dev.jsonl.gz", None, 64),
        more=("data.objective.question=16", "data.objective.stride=16", *LEAN),
        epochs=1,
    ),
}


# ---- the corpora -------------------------------------------------------------


def with_columns(source, renamed, target):
    """The records of a JSONL file with columns under other names, as a file `target`; `source` itself where it has none of them."""
    found = [record for _, record in records(str(source))] if renamed else []
    if not any(renamed.keys() & record.keys() for record in found):
        return source
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        for record in found:
            file.write(
                json.dumps(
                    {renamed.get(name, name): value for name, value in record.items()},
                    ensure_ascii=False,
                )
                + "\n"
            )
    return target


def files_of(task, corpora, work):
    """{"train", "heldout", "also": path or None} of a task, with the columns that it wants."""
    found = {part: getattr(task, part) for part in ("train", "heldout", "also")}
    return {
        part: name and with_columns(corpora / name, task.renamed, work / "corpora" / name)
        for part, name in found.items()
    }
