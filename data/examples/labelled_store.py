"""Labelled examples as a token store: a document is an example, beside it lies its label."""

import pathlib
from typing import Any

import numpy as np

from data.examples.example_store import ExampleStore
from data.examples.labelled import Example, numbered
from data.prepare.jobs import text_hash
from data.store.generations import replace_store
from data.store.writer import SPLITS, StoreWriter
from data.vocabulary.load import Vocabulary


def part(examples: list[Any], share: float) -> tuple[list[Any], list[Any]]:
    """(to train on, held out): a share by the hash of their texts, so that copies are on one side, and the same ones whatever else there is."""
    below = round(share * (1 << 64))
    sides = [], []
    for example in examples:
        sides[text_hash("\n".join(example.texts).encode()) < below].append(example)
    if not all(sides):
        left = f"{len(sides[0])} to train on and {len(sides[1])} held out"
        raise ValueError(
            f"{len(examples)} examples, of which a share of {share:g} leaves {left}: name a file to hold out"
        )
    return sides


def write_labelled(
    output,
    vocabulary: Vocabulary,
    examples: dict[str, list[Example]],
    names: tuple[str, ...],
    **described,
) -> ExampleStore:
    """Write examples as the store `output`, in place of what is there, and open it.

    examples: those of each split; names: of the classes, () for scores; described: further entries of the manifest. What is to be encoded
    is in memory at once. Raises ValueError for a label that is not among the names.
    """
    labels = {split: numbered(examples.get(split, []), names) for split in SPLITS}
    output = pathlib.Path(output).absolute()
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("examples")
        for split in SPLITS:
            texts = [text for example in examples.get(split, []) for text in example.texts]
            ids = vocabulary.encode_batch(texts)
            lengths = np.array([len(one) for one in ids], np.int64)
            flat = np.fromiter((i for one in ids for i in one), np.int64, count=int(lengths.sum()))
            each = (
                lengths.reshape(len(labels[split]), -1) if len(lengths) else lengths.reshape(0, 1)
            )
            writer.add(split, flat, each.sum(axis=1), lengths)
            writer.add_labels(split, labels[split])
        writer.finish([1.0], labels=list(names), **described)
    return ExampleStore.open(output)
