"""Write labelled examples as a token store, in which each document is an example with a label."""

import os
import pathlib
from typing import Any

import numpy as np

from data.examples.example_store import ExampleStore
from data.examples.labelled_examples import Example, encode_labels
from data.prepare.held_out import hash_document
from data.source import SPLITS
from data.store.generations import replace_store
from data.store.manifest import LABEL_WIDTH
from data.store.writer import StoreWriter
from data.vocabulary.load import Vocabulary


def split_examples(examples: list[Any], share: float) -> tuple[list[Any], list[Any]]:
    """Split examples into (training, held-out) examples, by the hash of their texts.

    Copies of a text are on one side, in other case or Unicode form too. An example's side depends
    neither on the others nor on the vocabulary.

    Args:
      share: share of the held-out examples.
    """
    limit = round(share * (1 << 64))
    sides: tuple[list[Any], list[Any]] = [], []
    for example in examples:
        text = "\n".join(example.texts).encode(errors="surrogatepass")
        sides[hash_document(text) < limit].append(example)
    if not all(sides):
        raise ValueError(
            f"a held-out share of {share:g} of {len(examples)} examples leaves {len(sides[0])} to "
            f"train on and {len(sides[1])} held out: name a file to hold out"
        )
    return sides


def write_labelled(
    output: str | os.PathLike[str],
    vocabulary: Vocabulary,
    examples: dict[str, list[Example]],
    names: tuple[str, ...],
    **described: Any,
) -> ExampleStore:
    """Write examples as the store `output`, which is replaced if it exists, and open it.

    All texts are in memory at once.

    Args:
      names: names of the classes; () for scores and vectors.

    Raises:
      ValueError: a label is not in `names`.
    """
    labels = {split: encode_labels(examples.get(split, []), names) for split in SPLITS}
    output = pathlib.Path(output).absolute()
    with replace_store(output) as folder, StoreWriter(folder, vocabulary) as writer:
        writer.begin_source("examples")
        for split in SPLITS:
            texts = [text for example in examples.get(split, []) for text in example.texts]
            ids = vocabulary.encode_batch(texts)
            lengths = np.array([len(text_ids) for text_ids in ids], np.int64)
            flat = np.fromiter(
                (i for text_ids in ids for i in text_ids), np.int64, count=int(lengths.sum())
            )
            by_example = (
                lengths.reshape(len(labels[split]), -1) if len(lengths) else lengths.reshape(0, 1)
            )
            writer.add_documents(split, flat, by_example.sum(axis=1), lengths)
            writer.add_labels(split, labels[split])
        width = max(one.shape[1:] for one in labels.values())  # (W,) of vectors, else ()
        described |= {LABEL_WIDTH: width[0]} if width else {}
        writer.finish([1.0], labels=list(names), **described)
    return ExampleStore.open(output)
