"""The meaning of the labels of images: the names of their classes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from etils import epath

from data.corpus.paths import as_path
from data.corpus.untrusted import MAX_VOCABULARY_BYTES, read_bounded_json

FOLDER, FILE = "images", "classes.json"  # of a workdir
MAX_CLASSES, MAX_NAME = 100_000, 200
# Half of a character, which no text may have, or a byte of a file's name that is not UTF-8.
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class ImageEncoding:
    """The classes of images in the order of their labels; () where images have no labels.

    Raises:
      ValueError: a name is empty, too long or not unique, or there are too many.
    """

    kind: ClassVar[str] = "images"
    size: ClassVar[int] = 256  # values of a byte: a store has the files of images
    token_dtype: ClassVar[str] = "|u1"

    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.classes) > MAX_CLASSES:
            raise ValueError(f"{len(self.classes):,} classes; at most {MAX_CLASSES:,}")
        if bad := [name for name in self.classes if not 0 < len(name) <= MAX_NAME]:
            raise ValueError(f"a class is named {bad[0]!r:.60}: names have 1 to {MAX_NAME} letters")
        if bad := [name for name in self.classes if SURROGATE.search(name)]:
            raise ValueError(
                f"a class is named {bad[0]!r:.60}, which is not UTF-8: rename its folder"
            )
        if len(set(self.classes)) < len(self.classes):
            names = sorted(self.classes)
            twice = next(a for a, b in itertools.pairwise(names) if a == b)
            raise ValueError(f"two classes are named {twice!r}")

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the classes and their order."""
        description = json.dumps(["images", *self.classes])
        return hashlib.sha256(description.encode()).hexdigest()[:32]

    @property
    def artefacts(self) -> Mapping[str, Callable[[str], Any]]:
        """{name of a folder in a workdir: function that writes its files}."""
        return {FOLDER: self.save}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the classes to a folder, made if absent."""
        os.makedirs(folder, exist_ok=True)
        text = json.dumps({"classes": self.classes}, ensure_ascii=False, indent=1) + "\n"
        (pathlib.Path(folder) / FILE).write_text(text, encoding="utf-8")


def load_image_encoding(folder: epath.PathLike) -> ImageEncoding:
    """Return the classes in a folder that `ImageEncoding.save` wrote.

    Raises:
      FileNotFoundError: the file is missing.
      ValueError: the file is damaged; the message names it.
    """
    path = as_path(folder) / FILE
    content = read_bounded_json(path, MAX_VOCABULARY_BYTES)
    classes = content.get("classes") if isinstance(content, dict) else None
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ValueError(f'{path}: expected {{"classes": [names]}}')
    try:
        return ImageEncoding(tuple(classes))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
