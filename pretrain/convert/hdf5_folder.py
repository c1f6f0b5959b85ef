"""Import of released weights in HDF5: a folder with options.json, one .hdf5 file, and, if there is
one, the list of words vocab*.txt.

The families whose record has an `Hdf5Map` are read. The sizes in options.json decide which datasets
there must be, and of which shapes, before any is read; so a file cannot name more than it holds.
"""

import dataclasses
import importlib.util
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import jax
import numpy as np

from data.vocabulary.base import Vocabulary
from data.vocabulary.spelling import read_word_list
from data.vocabulary.word_level import build_word_vocabulary
from models.layers.layer_layout import flatten_params, unflatten_params
from pretrain.convert.safe_folder import CONFIG, FolderError, read_json
from pretrain.convert.size_checks import MAX_LAYERS, MAX_SIZE, check_fits_memory
from pretrain.convert.weight_values import check_finite
from pretrain.families import FAMILIES
from pretrain.families.family_record import Family, Hdf5Map
from pretrain.host.extras import how_to_install

OPTIONS, ENDINGS = "options.json", (".hdf5", ".h5")
TYPES = ("float16", "float32", "float64")
Datasets = dict[str, np.ndarray]


def is_hdf5_folder(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has HDF5 weights or their options, and no config.json."""
    path = pathlib.Path(folder)
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    return CONFIG not in names and (
        OPTIONS in names or any(name.endswith(ENDINGS) for name in names)
    )


@dataclasses.dataclass(frozen=True)
class Hdf5Tensors:
    """The names and types of the datasets, as the summary of an import lists them."""

    types: dict[str, str]

    def __len__(self) -> int:
        return len(self.types)

    def list_formats(self) -> tuple[str, ...]:
        """Return the floating-point formats of the datasets, such as ("F32",)."""
        return tuple(sorted({f"F{8 * np.dtype(name).itemsize}" for name in self.types.values()}))


@dataclasses.dataclass(frozen=True)
class OpenedHdf5:
    """A folder whose options and datasets were checked, as `read_write.OpenedModel`.

    Attributes:
      path: the HDF5 file.
      vocabulary: the words of vocab*.txt, or the special tokens alone.
      architectures: (), since the folder names no class.
    """

    path: pathlib.Path
    family: Family
    config: Any
    tensors: Hdf5Tensors
    vocabulary: Vocabulary
    architectures: tuple[str, ...] = ()

    @property
    def encoding(self) -> Vocabulary:
        """The vocabulary."""
        return self.vocabulary

    def load_params(
        self, config: Any, init: Callable[[], Any], allow_nonfinite: bool = False
    ) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
        """Return (parameters, paths of those initialized, no names).

        Raises:
          FolderError: the configuration has other sizes than the file, or weights are not finite.
        """
        hdf5 = require_map(self.family)
        if hdf5.list_datasets(config) != hdf5.list_datasets(self.config):
            raise FolderError(
                f"{self.path}: the model has other sizes than {OPTIONS}; drop model.*"
            )
        found = hdf5.fill_params(config, read_datasets(self.path, hdf5, config))
        if not allow_nonfinite:
            for name, array in found.items():
                check_finite(name, array, "--allow-nonfinite imports it as it is.")
        initial = flatten_params(jax.device_get(jax.jit(init)()))
        params = {path: found.get(path, leaf) for path, leaf in initial.items()}
        missing = tuple(path for path in initial if path not in found)
        return unflatten_params(params), missing, ()


def require_map(family: Family) -> Hdf5Map:
    """Return the names of a family that has some in HDF5."""
    assert family.hdf5 is not None
    return family.hdf5


def open_hdf5_model(folder: str | os.PathLike[str]) -> OpenedHdf5:
    """Open a folder of released weights and check its options and datasets.

    Raises:
      FolderError: h5py is not installed, a file is missing or damaged, an option is not supported,
        or a dataset is missing or has another shape; names the file and the option or dataset.
    """
    folder = pathlib.Path(folder)
    if importlib.util.find_spec("h5py") is None:
        raise FolderError(
            f"{folder}: its weights are in HDF5, which needs h5py: {how_to_install('hdf5')}"
        )
    family = next(record for record in FAMILIES.values() if record.hdf5)
    hdf5, vocabulary = require_map(family), read_folder_vocabulary(folder)
    options = read_json(folder / OPTIONS, missing="it has the sizes of HDF5 weights")
    try:
        config = cast(Any, family.config)(vocab=vocabulary.size, **hdf5.read_options(options))
        check_option_sizes(config)
        shapes = hdf5.list_datasets(config)
        check_fits_memory(sum(int(np.prod(shape)) for shape in shapes.values()))
    except KeyError as error:
        raise FolderError(f"{folder / OPTIONS}: the option {error} is missing") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise FolderError(f"{folder / OPTIONS}: {error}") from error
    path = find_weights(folder)
    with open_file(path) as file:
        types = {name: check_dataset(path, file, name, shape) for name, shape in shapes.items()}
    return OpenedHdf5(path, family, config, Hdf5Tensors(types), vocabulary)


def check_option_sizes(config: Any) -> None:
    """Raise ValueError for a number that is not whole, or larger than is read."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.type is int:
            most = MAX_LAYERS if field.name in ("depth", "highways") else MAX_SIZE
            if type(value) is not int or value > most:
                raise ValueError(f"{field.name} is {value!r:.40}; at most {most:,} is read")
        elif isinstance(value, tuple):
            numbers = [number for pair in value for number in pair]
            if len(value) > MAX_LAYERS or any(
                type(number) is not int or number > MAX_SIZE for number in numbers
            ):
                raise ValueError(
                    f"{field.name} has a number that is not whole or above {MAX_SIZE:,}, or more "
                    f"than {MAX_LAYERS:,} entries"
                )


def find_weights(folder: pathlib.Path) -> pathlib.Path:
    """Return the one HDF5 file of a folder, or of several the one named `weights`.

    Raises FolderError for none or several.
    """
    paths = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS))
    if len(paths) > 1:
        paths = [path for path in paths if path.stem.endswith("weights")] or paths
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths[:4]) or "none"
        raise FolderError(
            f"{folder}: one {' or '.join(ENDINGS)} file with the weights is expected, not {names}"
        )
    return paths[0]


@contextmanager
def open_file(path: pathlib.Path) -> Iterator[Any]:
    """Open an HDF5 file. Raises FolderError if it is none or damaged."""
    import h5py

    if not path.is_file() or not h5py.is_hdf5(path):
        raise FolderError(f"{path}: not an HDF5 file; fetch it again")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise FolderError(f"{path}: a damaged HDF5 file ({error}); fetch it again") from error
    with file:
        yield file


def check_dataset(path: pathlib.Path, file: Any, name: str, shape: tuple[int, ...]) -> str:
    """Return the type of a dataset.

    Raises FolderError unless the file itself holds it, with this shape and floats.
    """
    import h5py

    parts = name.split("/")
    for end in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:end]), getlink=True)
        if link is None:
            raise FolderError(f"{path}: has no dataset {name}")
        if not isinstance(link, h5py.HardLink):
            raise FolderError(f"{path}: {name} is a link to another place, which is not followed")
    try:
        found = file[name]
    except (KeyError, OSError, RuntimeError) as error:
        raise FolderError(f"{path}: {name} is damaged ({error}); fetch it again") from error
    if not isinstance(found, h5py.Dataset):
        raise FolderError(f"{path}: {name} is a {type(found).__name__}, not a dataset")
    if found.external or found.is_virtual:
        raise FolderError(f"{path}: {name} is stored in another file, which is not read")
    if found.shape != shape:
        raise FolderError(f"{path}: {name} has the shape {found.shape}, and {shape} by {OPTIONS}")
    if found.dtype.name not in TYPES:
        raise FolderError(
            f"{path}: {name} is stored as {found.dtype!s:.40}; {', '.join(TYPES)} are read"
        )
    return found.dtype.name


def read_datasets(path: pathlib.Path, hdf5: Hdf5Map, config: Any) -> Datasets:
    """Return {name: float32 array} of the datasets of a configuration, checked again."""
    arrays = {}
    with open_file(path) as file:
        for name, shape in hdf5.list_datasets(config).items():
            check_dataset(path, file, name, shape)
            try:
                arrays[name] = file[name][()].astype(np.float32)
            except OSError as error:
                raise FolderError(f"{path}: {name} is damaged ({error}); fetch it again") from error
    return arrays


def read_folder_vocabulary(folder: pathlib.Path) -> Vocabulary:
    """Return the vocabulary of the words of vocab*.txt, or of the special tokens without a file.

    Words are read by their characters: the list matters where they are predicted. Raises
    FolderError for a damaged list, or several.
    """
    lists = sorted(folder.glob("vocab*.txt"))
    if len(lists) > 1:
        raise FolderError(
            f"{folder}: has {len(lists)} lists of words, {lists[0].name} and {lists[1].name}"
        )
    try:
        return build_word_vocabulary(read_word_list(lists[0]) if lists else [])
    except ValueError as error:
        raise FolderError(str(error)) from error
