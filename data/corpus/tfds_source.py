"""Read documents from TensorFlow datasets; the only corpus reader that imports TensorFlow.

TFDS downloads and prepares a dataset that is not on disk ($TFDS_DATA_DIR, else
~/tensorflow_datasets).
"""

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

from data.corpus.network import find_unreachable
from data.corpus.paths import TFDS_NAME
from data.corpus.readers import RawDocument
from data.corpus.record_texts import NOT_UTF8, join_pair
from data.tensorflow_import import check_tensorflow

# Hosts of which one answers where there is a network: of TFDS, of GLUE, of SQuAD.
DOWNLOAD_HOSTS = ("storage.googleapis.com", "dl.fbaipublicfiles.com", "github.com")


def list_shards(name: str, split: str, fields: list[str]) -> list[tuple[str, str, int, int, int]]:
    """Return (folder, split, start, stop, bytes) of each stored file of a split, in order.

    Args:
      name: NAME[/CONFIG][:VERSION] of the dataset.
      split: name of a split, or a slice of one.
      fields: features that the dataset must have.

    Raises:
      ValueError: if there is no such dataset, split or feature.
    """
    tfds, builder = import_tfds(f"tfds:{name}"), open_builder(name)
    features: Any = builder.info.features or {}
    for field in fields:
        if field not in features:
            raise ValueError(
                f"tfds:{name}: no field {field!r}, it has {', '.join(sorted(features))}; "
                "--field names it"
            )
    try:
        instructions = tfds.core.ReadInstruction.from_spec(split).to_absolute(builder.info.splits)
    except (ValueError, KeyError, AssertionError) as error:
        raise ValueError(
            f"tfds:{name}: no split {split!r}; "
            f"it has {', '.join(sorted(builder.info.splits))} ({error})"
        ) from error
    found = []
    for instruction in instructions:
        name_of_split = instruction.splitname
        info = builder.info.splits[name_of_split]
        example_bytes = max(info.num_bytes, 1) / max(info.num_examples, 1)
        start = 0
        for length in info.shard_lengths:
            end = info.num_examples if instruction.to is None else instruction.to
            low, high = max(start, instruction.from_ or 0), min(start + length, end)
            if low < high:
                shard_bytes = int(example_bytes * (high - low)) + 1
                found.append((str(builder.data_dir), name_of_split, low, high, shard_bytes))
            start += length
    return found


def read_examples(
    folder: str, split: str, start: int, stop: int, fields: list[str]
) -> Iterator[RawDocument]:
    """Yield examples [start, stop) of a split as documents, in stored order.

    Two fields make a pair. The line of a document is the number of its example.
    """
    tfds = import_tfds()
    builder = tfds.builder_from_directory(folder)
    info = builder.info.splits[split]
    example_bytes = max(info.num_bytes, 1) / max(info.num_examples, 1)
    for i, example in enumerate(_iterate_examples(builder, split, start, stop, fields), start=1):
        place, texts, repair = f"{folder}, {split}[{start + i - 1}]", [], None
        for field in fields:
            text = example[field]
            if not isinstance(text, (bytes, str)):
                raise ValueError(f"{place}: field {field!r} is {type(text).__name__}, not a text")
            raw = text.encode() if isinstance(text, str) else text
            texts.append(raw.decode("utf-8", "replace").encode())
            repair = repair if texts[-1] == raw else NOT_UTF8
        try:
            document = join_pair(*texts) if len(fields) == 2 else texts[0]
            yield RawDocument(document, start + i, int(i * example_bytes), repair)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None


def read_records(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, {column: value}) of the examples of a TensorFlow dataset, in stored order.

    A value is a text, a number or the name of a class. An unknown class (-1, as in the test splits
    of GLUE) is None.

    Args:
      source: tfds:NAME[/CONFIG][:VERSION][:SPLIT].
    """
    tfds, match = import_tfds(source), TFDS_NAME.fullmatch(source)
    if not match:
        raise ValueError(
            f"{source}: a TensorFlow dataset is named tfds:NAME[/CONFIG][:VERSION][:SPLIT]"
        )
    name, split = match["name"], match["split"] or "train"
    features: Any = open_builder(name).info.features
    classes = {
        column: feature.names
        for column, feature in features.items()
        if isinstance(feature, tfds.features.ClassLabel)
    }
    for folder, shard_split, start, stop, _ in list_shards(name, split, []):
        builder = tfds.builder_from_directory(folder)
        examples = _iterate_examples(builder, shard_split, start, stop, list(features))
        for i, example in enumerate(examples, start):
            yield (
                f"{folder}, {shard_split}[{i}]",
                {
                    column: _to_plain_value(example[column], classes.get(column))
                    for column in features
                },
            )


def _to_plain_value(value: Any, names: list[str] | None) -> Any:
    """Return a feature's value as Python text or number, or the name of a class given `names`."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if names is not None:
        return names[value] if value >= 0 else None
    return value.item() if getattr(value, "shape", None) == () else value


def _iterate_examples(
    builder: Any, split: str, start: int, stop: int, fields: list[str]
) -> Iterator[dict[str, Any]]:
    """Return the given fields of examples [start, stop) of a split, in stored order."""
    tfds = import_tfds()
    instruction = tfds.core.ReadInstruction(split, from_=start, to=stop, unit="abs")
    if builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD:
        return iter(builder.as_data_source(split=instruction))
    read_config = tfds.ReadConfig(try_autocache=False)
    decoders = tfds.decode.PartialDecoding(dict.fromkeys(fields, True))
    return builder.as_dataset(
        split=instruction, decoders=decoders, read_config=read_config, shuffle_files=False
    ).as_numpy_iterator()


def import_tfds(use: str = "TFDS") -> Any:
    """Import tensorflow_datasets without TensorFlow's messages on stderr.

    Args:
      use: what needs it, such as the name of a source, for the error message.

    Raises:
      ValueError: it is not installed.
    """
    check_tensorflow(use, "tensorflow_datasets")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow_datasets

    return tensorflow_datasets


def open_builder(name: str) -> Any:
    """Return the builder of a dataset, which is downloaded and prepared if it is not on disk.

    Raises:
      ValueError: if TFDS does not know the dataset.
      OSError: if it is not on disk and cannot be downloaded.
    """
    tfds = import_tfds(f"tfds:{name}")
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of what a stopped download left
    try:
        builder = tfds.builder(name)
    except (tfds.core.DatasetNotFoundError, ValueError, AssertionError) as error:
        message = str(error).strip().split("\n")[0]
        raise ValueError(
            f"tfds:{name}: TFDS knows no such dataset, and none of that name is on disk ({message})"
        ) from error
    if not builder.is_prepared():
        _download(builder, name)
    return builder


def _download(builder: Any, name: str) -> None:
    """Download and prepare a dataset; raise OSError, which says what to do, if that fails.

    Without a network TFDS would retry for minutes.
    """
    if reason := find_unreachable(DOWNLOAD_HOSTS):
        raise _make_download_error(builder, name, f"there is no network ({reason})")
    # The bars and the bold notice of TFDS are control sequences, which a command's output escapes.
    import_tfds().disable_progress_bar()
    print(f"tfds:{name}: is downloaded to {builder.data_dir}", file=sys.stderr, flush=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # it logs each retry
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare()
    except Exception as error:  # of requests, of TFDS and of the dataset's own reader
        line = next(iter(str(error).strip().splitlines()), "")
        raise _make_download_error(builder, name, f"{type(error).__name__}: {line:.300}") from error


def _make_download_error(builder: Any, name: str, reason: str) -> OSError:
    return OSError(
        f"tfds:{name} is not on disk ({builder.data_dir}) and cannot be downloaded: {reason}. "
        "Name files in its place (finetune: --train FILE --heldout FILE), or copy the folder from "
        "a machine that has it and set TFDS_DATA_DIR to the folder of all datasets"
    )
