"""The tasks of the downstream benchmarks, and their files."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from data.examples.labelled_examples import read_records

EPOCHS = 3


class DownstreamTask(NamedTuple):
    """A fine-tuning task.

    Attributes:
      kind: the --task of `finetune`.
      train: file of the training examples, relative to the corpora.
      heldout: file of the held-out examples; None for a tenth of `train`.
      length: tokens of a row.
      also: a further labelled file, on which the step that is best on `heldout` is scored.
      renamed: {column of the files: name that `kind` expects}.
      more: further settings.
      epochs: number of epochs; the best one is reported.
    """

    kind: str
    train: str
    heldout: str | None
    length: int
    also: str | None = None
    renamed: dict[str, str] = {}
    more: tuple[str, ...] = ()
    epochs: int = EPOCHS


# On a CPU this takes half the time of float32 with scanned layers; used for both starts.
FAST_SETTINGS = ("train.compute_dtype=bfloat16", "model.encoder.scan=false")
# In the order in which they run: the cheaper ones first.
TASKS = {
    "CoLA": DownstreamTask(
        "cola", "glue_cola/train.jsonl", "glue_cola/dev_in.jsonl", 24, "glue_cola/dev_out.jsonl"
    ),
    "RTE": DownstreamTask("rte", "glue_rte/train.jsonl", "glue_rte/dev.jsonl", 96),
    "SST-2": DownstreamTask(
        *(
            "sst2",
            "cls_sentconv/sst2_train_sents.jsonl",
            "glue_sst2/dev.jsonl",
            48,
            "cls_sentconv/sst2_test.jsonl",
        ),
        renamed={"text": "sentence"},
    ),
    "WNUT-17": DownstreamTask(
        "tagging", "ner_wnut17/train.conll", "ner_wnut17/dev.conll", 64, "ner_wnut17/test.conll"
    ),
    "MRPC": DownstreamTask(
        "mrpc", "glue_mrpc/train.jsonl", "glue_mrpc/test.jsonl", 96, more=FAST_SETTINGS
    ),
    "STS-B": DownstreamTask(
        "stsb",
        "glue_stsb/train.jsonl",
        "glue_stsb/dev.jsonl",
        48,
        "glue_stsb/test.jsonl",
        more=FAST_SETTINGS,
    ),
    "MR": DownstreamTask("classification", "cls_sentconv/mr.jsonl", None, 48, more=FAST_SETTINGS),
    "QAMR": DownstreamTask(
        *("squad", "qa_qamr/train_from_dev.jsonl.gz", None, 64),
        more=("data.objective.question=16", "data.objective.stride=16", *FAST_SETTINGS),
        epochs=1,
    ),
}


# ---- the corpora -------------------------------------------------------------


def rename_columns(
    source: pathlib.Path, renamed: Mapping[str, str], target: pathlib.Path
) -> pathlib.Path:
    """Rename columns of a JSONL file.

    Args:
      renamed: {old name: new name}.
      target: where to write the renamed copy.

    Returns:
      `target`, or `source` if it has none of the columns.
    """
    examples = [record for _, record in read_records(str(source))] if renamed else []
    if not any(renamed.keys() & record.keys() for record in examples):
        return source
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        for record in examples:
            file.write(
                json.dumps(
                    {renamed.get(name, name): value for name, value in record.items()},
                    ensure_ascii=False,
                )
                + "\n"
            )
    return target


def locate_files(
    task: DownstreamTask, corpora: pathlib.Path, work: pathlib.Path
) -> dict[str, pathlib.Path | None]:
    """Return {train, heldout, also: path or None} of a task, with renamed columns."""
    names = {part: getattr(task, part) for part in ("train", "heldout", "also")}
    return {
        part: rename_columns(corpora / name, task.renamed, work / "corpora" / name)
        if name
        else None
        for part, name in names.items()
    }
