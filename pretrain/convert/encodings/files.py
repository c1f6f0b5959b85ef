"""The files that belong to what a model reads: of its tokenizer, or of its image processor."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from data.images.encoding import ImageEncoding
from data.vocabulary.load import Vocabulary, read_vocabulary
from models.config.base import ImageConfig
from models.config.heads import HeadedConfig
from pretrain.convert import find_model_family, find_model_type, tokenizer
from pretrain.convert.encodings.processor import (
    CROP_RATIO,
    PROCESSOR,
    describe_processor,
    read_processor,
)
from pretrain.convert.export_folder import write_json
from pretrain.convert.safe_folder import CONFIG, FolderError
from pretrain.families.labels import read_labels


def make_encoding(names: Sequence[str]) -> ImageEncoding:
    """Return the classes with the names of a config.json.

    Names that occur several times, such as the "crane" of ImageNet, a bird and a machine, get the
    number of their class, all but the first.

    Raises ValueError as `ImageEncoding`.
    """
    taken, classes = set(names), {}
    for number, name in enumerate(names):
        if name in classes:
            name = f"{name} ({number})"
            while name in taken:
                name += "'"
        classes[name] = number
    return ImageEncoding(tuple(classes))


Encoding = Vocabulary | ImageEncoding


def check_size(config: Any, encoding: Encoding) -> None:
    """Raise ValueError if a model has fewer rows or scores than its encoding has numbers."""
    if isinstance(encoding, ImageEncoding):
        if len(encoding.classes) > config.classes:
            raise ValueError(
                f"the images have {len(encoding.classes)} classes, the model only "
                f"{config.classes} scores (model.classes)"
            )
    elif encoding.size > config.vocab:
        raise ValueError(
            f"the vocabulary has {encoding.size} ids, the model only {config.vocab} rows "
            "(model.vocab)"
        )


def write_encoding(
    folder: pathlib.Path, config: Any, encoding: Encoding, crop_ratio: float | None = CROP_RATIO
) -> None:
    """Write the files of the tokenizer, or of the image processor.

    crop_ratio: as of `describe_processor`.
    """
    if isinstance(encoding, ImageEncoding):
        hf_map = find_model_family(config).hugging_face
        kind = f"{hf_map.architecture.partition('For')[0]}ImageProcessor" if hf_map else ""
        processor = describe_processor(config, kind, crop_ratio)
        write_json(folder / PROCESSOR, processor)
        return
    family, length = find_model_type(config), config.length
    is_labelled = isinstance(config, HeadedConfig)
    tokenizer.write_tokenizer(encoding, family, folder, length, is_labelled)


def read_encoding(
    folder: pathlib.Path,
    config: Any,
    hf_config: Mapping[str, Any],
    report: Callable[[str], Any] = print,
) -> tuple[Any, Encoding, float | None]:
    """Return (configuration, encoding, crop ratio of images) of a folder.

    A model of images gets the mean and the deviation of its image processor.

    Raises:
      FolderError: a file is missing, damaged or of another model.
    """
    if not isinstance(config, ImageConfig):
        return config, _read_own_vocabulary(folder, config), CROP_RATIO
    try:
        classes = make_encoding(read_labels(hf_config))
    except ValueError as error:
        raise FolderError(f"{folder / CONFIG}: id2label: {error}") from None
    config, crop_ratio = read_processor(folder, config, report)
    return config, classes, crop_ratio


def _read_own_vocabulary(folder: pathlib.Path, config: Any) -> Vocabulary:
    """Return the vocabulary of a folder. Raises FolderError if it is missing or too large."""
    try:
        vocabulary = read_vocabulary(folder)
    except FileNotFoundError as error:
        raise FolderError(f"{error}: put the model's own tokenizer files there") from error
    if vocabulary.size > config.vocab:
        raise FolderError(
            f"{folder}: its tokenizer has {vocabulary.size} ids, but vocab_size in {CONFIG} is "
            f"{config.vocab}: the tokenizer is of another model"
        )
    return vocabulary
