"""Export of a model as a Hugging Face folder, and import of such a folder."""

import dataclasses
import itertools
import os
import pathlib
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from data.images.encoding import ImageEncoding
from data.vocabulary.load import Vocabulary
from models.config.base import Config
from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from pretrain.convert import find_model_family, fine_tuned
from pretrain.convert.arrays.flax_weights import has_flax_weights, open_flax_weights
from pretrain.convert.embedder_folder import read_modules, write_modules
from pretrain.convert.encodings.files import check_size, read_encoding, write_encoding
from pretrain.convert.encodings.processor import CROP_RATIO
from pretrain.convert.export_folder import (
    list_sizes,
    replace_export,
    write_json,
    write_own_code,
    write_tensors,
)
from pretrain.convert.head_maps import EMBEDDER
from pretrain.convert.name_map import ImportReport
from pretrain.convert.pretrained import CONVERTERS, Converter
from pretrain.convert.safe_folder import (
    CONFIG,
    FolderError,
    FolderTensors,
    JoinedTensors,
    read_config,
)
from pretrain.convert.size_checks import check_model_sizes
from pretrain.convert.weight_values import FiniteTensors, check_finite, round_tensors
from pretrain.families import FAMILIES, find_family
from pretrain.families.key_rules import name_keys

REFUSED = {
    name: why
    for family in FAMILIES.values()
    if family.hugging_face
    for name, why in family.hugging_face.refused.items()
}


# ---- export ------------------------------------------------------------------


class ModelConverter(Protocol):
    """The conversion of one kind of model: a `Converter`, or the module `fine_tuned`."""

    @property
    def subfolders(self) -> tuple[str, ...]: ...
    def to_hf(self, config: Any, params: dict[str, Any]) -> dict[str, np.ndarray]: ...
    def from_hf(
        self, config: Any, tensors: Mapping[str, np.ndarray], init_params: dict[str, Any]
    ) -> tuple[dict[str, Any], ImportReport]: ...
    def to_hf_config(self, config: Any, encoding: Any, /) -> dict[str, Any]: ...
    def from_hf_config(self, hf_config: Mapping[str, Any]) -> Config: ...


def find_converter(config: Config) -> ModelConverter:
    """Return the converter of a model: its family's `Converter`, or the module `fine_tuned`.

    The module converts encoders with a head. Raises ValueError if there is no converter.
    """
    return fine_tuned if isinstance(config, HeadedConfig) else Converter(find_family(config))


def write_model(
    output: str | os.PathLike[str],
    config: Any,
    params: dict[str, Any],
    encoding: Vocabulary | ImageEncoding,
    *,
    card: str | None = None,
    overwrite: bool = False,
    allow_nonfinite: bool = False,
    dtype: str = "float32",
    crop_ratio: float | None = CROP_RATIO,
) -> dict[str, int]:
    """Write a model as a Hugging Face folder, which appears whole or not at all.

    The folder has safetensors, config.json, the tokenizer or the image processor, and README.md.

    Args:
      encoding: its vocabulary, or the classes of its images.
      card: the content of README.md; None writes none.
      dtype: of the weights in the files, one of `dtypes.TYPES`.

    Returns:
      {file: size in bytes}.

    Raises:
      ValueError: the model has fewer rows than the vocabulary has ids, or fewer scores than there
        are classes; or weights are not finite or beyond the range of `dtype`.
      FileExistsError: `output` exists and may not be replaced.
    """
    check_size(config, encoding)
    converter = find_converter(config)
    hf_config = converter.to_hf_config(config, encoding)
    tensors = converter.to_hf(config, params)
    if not allow_nonfinite:
        for name, tensor in tensors.items():
            check_finite(name, tensor, "--allow-nonfinite exports it as it is.")
    tensors = round_tensors(tensors, dtype)
    with replace_export(output, overwrite) as folder:
        for subfolder in (*converter.subfolders, ""):
            path = folder / subfolder
            path.mkdir(exist_ok=True)
            prefix = f"{subfolder}/" if subfolder else ""
            own = [name for name in tensors if name.startswith(prefix)]
            write_tensors(path, {name.removeprefix(prefix): tensors.pop(name) for name in own})
            settings = (hf_config.pop(subfolder) if subfolder else hf_config) | {"dtype": dtype}
            _write_settings(path, settings, encoding)
            write_encoding(path, config, encoding, crop_ratio)
        write_own_code(folder, config)
        if isinstance(config, EmbedderConfig):
            write_modules(folder, config)
        if card is not None:
            (folder / "README.md").write_text(card, encoding="utf-8")
        return list_sizes(folder)


def _write_settings(
    folder: pathlib.Path, settings: dict[str, Any], encoding: Vocabulary | ImageEncoding
) -> None:
    """Write config.json, and generation_config.json for an encoder-decoder."""
    write_json(folder / CONFIG, settings)
    if settings.get("is_encoder_decoder") and not isinstance(encoding, ImageEncoding):
        generation = make_generation_config(settings, encoding)
        write_json(folder / "generation_config.json", generation)


def make_generation_config(settings: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of generation_config.json: with which ids `generate` starts and ends."""
    return {
        "decoder_start_token_id": settings["decoder_start_token_id"],
        "eos_token_id": vocabulary.eos,
        "pad_token_id": vocabulary.pad,
    }


# ---- import ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class OpenedModel:
    """A folder whose files were checked, and whose parameters can be loaded.

    No code of the folder is ever executed.

    Attributes:
      architectures: the classes of transformers that config.json names.
      converter: the converter, see `find_converter`.
      tensors: the tensors, each of which is read when it is accessed.
      encoding: the vocabulary of its tokenizer, or the classes of its images.
    """

    folder: pathlib.Path
    architectures: tuple[str, ...]
    converter: ModelConverter
    config: Any
    tensors: JoinedTensors
    encoding: Vocabulary | ImageEncoding
    crop_ratio: float | None = CROP_RATIO

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of a model of texts."""
        assert not isinstance(self.encoding, ImageEncoding)
        return self.encoding

    def __post_init__(self) -> None:
        """Raise FolderError if config.json names sizes that the tensors do not have."""
        hf_map = find_model_family(self.config).require_hugging_face()
        seconds = (second.keys for second in hf_map.second_models.values())
        keys = name_keys((*itertools.chain(*seconds), *hf_map.keys))
        try:
            check_model_sizes(self.config, keys, self.tensors.shapes)
        except ValueError as error:
            raise FolderError(f"{self.folder / CONFIG}: {error}") from None

    def load_params(
        self, config: Any, init: Callable[[], Any], allow_nonfinite: bool = False
    ) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
        """Return (parameters, names of missing tensors, names of unused tensors).

        Args:
          config: the configuration of the parameters; it may differ from the folder's in how
            the model is computed.
          init: a traceable function that initializes such parameters. It is computed only if a head
            is missing, which is then taken from it.

        Raises:
          FolderError: names a tensor that is missing and is not of a head, has another shape, or is
            not finite.
        """
        # Arrays of the right shapes that take no memory.
        abstract_params = jax.tree.map(
            lambda leaf: np.broadcast_to(np.float32(0), leaf.shape), jax.eval_shape(init)
        )
        tensors = self.tensors if allow_nonfinite else FiniteTensors(self.tensors)
        params, report = self._fill_params(config, tensors, abstract_params)
        if report.missing:
            params, report = self._fill_params(config, tensors, jax.device_get(jax.jit(init)()))
        return params, tuple(report.missing), tuple(report.unused)

    def _fill_params(
        self, config: Any, tensors: Mapping[str, np.ndarray], params: dict[str, Any]
    ) -> tuple[dict[str, Any], Any]:
        try:
            return self.converter.from_hf(config, tensors, params)
        except FolderError:
            raise
        except ValueError as error:
            raise FolderError(f"{self.folder}: {error}") from error


def open_model(folder: str | os.PathLike[str], report: Callable[[str], Any] = print) -> OpenedModel:
    """Open a Hugging Face folder of a model in CONVERTERS or of one with a head; check its files.

    Configuration, tokenizer or image processor, and the headers of the tensor files are read.

    Raises:
      FileNotFoundError: there is no such folder.
      ValueError: the folder cannot be imported (mostly as FolderError); names the file, the setting
        or the tensor.
    """
    folder = pathlib.Path(folder)
    hf_config = read_config(folder, report)
    hf_config.pop(EMBEDDER, None)
    if modules := read_modules(folder):
        hf_config[EMBEDDER] = modules
    converter = _choose_converter(folder, hf_config)
    subfolders = [name for name in converter.subfolders if (folder / name).is_dir()]
    for subfolder in subfolders:
        hf_config[subfolder] = read_config(folder / subfolder, report)
    try:
        config = converter.from_hf_config(hf_config)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{folder / CONFIG}: {error}") from error
    if find_model_family(config).arrays and has_flax_weights(folder):
        tensors: Any = open_flax_weights(folder)
    else:
        tensors = JoinedTensors({name: FolderTensors(folder / name) for name in ("", *subfolders)})
    architectures = tuple(fine_tuned.list_architectures(hf_config))
    try:
        config = _refine_config(config, tensors)
    except ValueError as error:
        raise FolderError(f"{folder}: {error}") from error
    config, encoding, crop_ratio = read_encoding(folder, config, hf_config, report)
    return OpenedModel(folder, architectures, converter, config, tensors, encoding, crop_ratio)


def _refine_config(config: Any, tensors: Any) -> Any:
    """Return the configuration of a folder, with what its tensors alone say."""
    refine = find_model_family(config).require_hugging_face().refine
    if isinstance(config, HeadedConfig):
        return dataclasses.replace(config, encoder=refine(config.encoder, tensors))
    return refine(config, tensors)


def _choose_converter(folder: pathlib.Path, hf_config: Mapping[str, Any]) -> ModelConverter:
    """Return the converter of a folder. Raises FolderError if its model cannot be imported."""
    architectures = fine_tuned.list_architectures(hf_config)
    for name in architectures:
        if name in REFUSED:
            raise FolderError(f"{folder / CONFIG}: {name}: {REFUSED[name]}")
    model_type = hf_config.get("model_type")
    family = (
        FAMILIES[model_type] if isinstance(model_type, str) and model_type in FAMILIES else None
    )
    if family and not family.hugging_face:
        raise FolderError(
            f"{folder / CONFIG}: model_type {model_type!r}: transformers has no such model, so "
            "there are no names by which its tensors could be imported"
        )
    if model_type is None and (folder / "checkpoints").is_dir():
        raise FolderError(
            f"{folder}: this is a workdir of Cloze, which needs no import. `export --workdir "
            f"{shlex.quote(str(folder))} --output FOLDER` writes a folder of transformers"
        )
    if model_type not in CONVERTERS:
        raise FolderError(
            f"{folder / CONFIG}: model_type {model_type!r} cannot be imported; "
            f"{', '.join(CONVERTERS)} can"
        )
    return CONVERTERS[model_type] if fine_tuned.find_head(hf_config) is None else fine_tuned
