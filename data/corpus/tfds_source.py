"""Documents from a TensorFlow dataset; the only part of reading that imports TensorFlow.

A dataset that is not on the disk ($TFDS_DATA_DIR, else ~/tensorflow_datasets) is downloaded and prepared by TFDS first.
"""

import os
from collections.abc import Iterator
from typing import Any

from data.corpus.paths import TFDS
from data.corpus.readers import NOT_UTF8, Record, pair


def shards(name: str, split: str, fields: list[str]) -> list[tuple[str, str, int, int, int]]:
    """(folder, split, first, last + 1, bytes) of a dataset's parts, one for each stored file, in order."""
    tfds, builder = _tfds(), _builder(name)
    features: Any = builder.info.features or {}
    for field in fields:
        if field not in features:
            raise ValueError(
                f"tfds:{name}: no field {field!r}, it has {', '.join(sorted(features))}; --field names it"
            )
    try:
        wanted = tfds.core.ReadInstruction.from_spec(split).to_absolute(builder.info.splits)
    except (ValueError, KeyError, AssertionError) as error:
        raise ValueError(
            f"tfds:{name}: no split {split!r}; it has {', '.join(sorted(builder.info.splits))} ({error})"
        ) from error
    found = []
    for part in wanted:
        info = builder.info.splits[part.splitname]
        each = max(info.num_bytes, 1) / max(info.num_examples, 1)
        start = 0
        for length in info.shard_lengths:
            low, high = (
                max(start, part.from_ or 0),
                min(start + length, info.num_examples if part.to is None else part.to),
            )
            if low < high:
                found.append(
                    (str(builder.data_dir), part.splitname, low, high, int(each * (high - low)) + 1)
                )
            start += length
    return found


def read(folder: str, split: str, start: int, stop: int, fields: list[str]) -> Iterator[Record]:
    """Examples [start, stop) of a split, in stored order; `line` is the number of the example. Two fields make a pair."""
    tfds = _tfds()
    builder = tfds.builder_from_directory(folder)
    info = builder.info.splits[split]
    each = max(info.num_bytes, 1) / max(info.num_examples, 1)
    for i, example in enumerate(_examples(builder, split, start, stop, fields), start=1):
        place, valid, mended = f"{folder}, {split}[{start + i - 1}]", [], None
        for field in fields:
            text = example[field]
            if not isinstance(text, (bytes, str)):
                raise ValueError(f"{place}: field {field!r} is {type(text).__name__}, not a text")
            raw = text.encode() if isinstance(text, str) else text
            valid.append(raw.decode("utf-8", "replace").encode())
            mended = mended if valid[-1] == raw else NOT_UTF8
        try:
            yield Record(
                pair(*valid) if len(fields) == 2 else valid[0], start + i, int(i * each), mended
            )
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None


def records(source: str) -> Iterator[tuple[str, dict]]:
    """(place, {column: text, number, or the name of a class}) of the examples of tfds:NAME[/CONFIG][:VERSION][:SPLIT], in stored order.

    An example whose class is not known (-1, as in the test parts of GLUE) has None there.
    """
    tfds, match = _tfds(), TFDS.fullmatch(source)
    if not match:
        raise ValueError(
            f"{source}: a TensorFlow dataset is named tfds:NAME[/CONFIG][:VERSION][:SPLIT]"
        )
    name, split = match["name"], match["split"] or "train"
    features: Any = _builder(name).info.features
    classes = {
        column: feature.names
        for column, feature in features.items()
        if isinstance(feature, tfds.features.ClassLabel)
    }
    for folder, part, start, stop, _ in shards(name, split, []):
        examples = _examples(tfds.builder_from_directory(folder), part, start, stop, list(features))
        for i, example in enumerate(examples, start):
            yield (
                f"{folder}, {part}[{i}]",
                {column: _plain(example[column], classes.get(column)) for column in features},
            )


def _plain(value, names):
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if names is not None:
        return names[value] if value >= 0 else None
    return value.item() if getattr(value, "shape", None) == () else value


def _examples(builder, split: str, start: int, stop: int, fields: list[str]) -> Iterator[dict]:
    """Examples [start, stop) of a split with the fields given, in stored order."""
    tfds = _tfds()
    part = tfds.core.ReadInstruction(split, from_=start, to=stop, unit="abs")
    if builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD:
        return iter(builder.as_data_source(split=part))
    once = tfds.ReadConfig(try_autocache=False)
    only = tfds.decode.PartialDecoding(dict.fromkeys(fields, True))
    return builder.as_dataset(
        split=part, decoders=only, read_config=once, shuffle_files=False
    ).as_numpy_iterator()


def _tfds():
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "3"
    )  # before TensorFlow is imported: it greets on stderr
    import tensorflow_datasets

    return tensorflow_datasets


def _builder(name: str):
    tfds = _tfds()
    try:
        builder = tfds.builder(name)
    except (tfds.core.DatasetNotFoundError, ValueError, AssertionError) as error:
        message = str(error).strip().split("\n")[0]
        raise ValueError(
            f"tfds:{name}: TFDS knows no such dataset, and has none of that name on the disk ({message})"
        ) from error
    if not builder.is_prepared():
        builder.download_and_prepare()
    return builder
