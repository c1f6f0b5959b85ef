"""A model of ours as a Hugging Face folder, and such a folder as a model of ours."""

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np

from data.vocabulary.load import Vocabulary, read_vocabulary
from models.config.heads import HeadedConfig
from pretrain.convert import classifier, name_of, tokenizer
from pretrain.convert.dtypes import round_tensors
from pretrain.convert.finite import FiniteTensors, check_finite
from pretrain.convert.pretrained import CONVERTERS, Converter
from pretrain.convert.safe_folder import (
    CONFIG,
    FolderError,
    Joined,
    Tensors,
    read_config,
    replace_export,
    write_json,
    write_tensors,
)
from pretrain.families import FAMILIES, family_of

REFUSED = {
    name: why for family in FAMILIES.values() for name, why in family.hugging_face.refused.items()
}


# ---- export ------------------------------------------------------------------


def converter_of(config):
    """Return what converts a model's parameters: its family's `Converter`, or the module `classifier` for encoders with a head.

    Raises ValueError where there is none.
    """
    return classifier if isinstance(config, HeadedConfig) else Converter(family_of(config))


def write_model(
    output,
    config,
    params,
    vocabulary,
    *,
    card=None,
    overwrite=False,
    allow_nonfinite=False,
    dtype="float32",
):
    """Write a model as the folder `output`: safetensors, configuration, tokenizer, README.md. Returns {file: bytes}.

    dtype: of the weights in the files, one of `dtypes.TYPES`. The folder appears whole or not at all. Raises ValueError where the model has
    fewer rows than the vocabulary ids, values that are not finite unless `allow_nonfinite`, or values beyond the range of `dtype`,
    and what `replace_export` raises for an `output` that exists.
    """
    if vocabulary.size > config.vocab:
        raise ValueError(
            f"the vocabulary has {vocabulary.size} ids, the model only {config.vocab} rows (model.vocab)"
        )
    family = name_of(config)
    module = converter_of(config)
    described, tensors = module.hf_config(config, vocabulary), module.to_hf(config, params)
    if not allow_nonfinite:
        for name, tensor in tensors.items():
            check_finite(name, tensor, "--allow-nonfinite exports it as it is.")
    tensors = round_tensors(tensors, dtype)
    with replace_export(output, overwrite) as folder:
        for part in (*module.parts, ""):
            place = folder / part
            place.mkdir(exist_ok=True)
            prefix = f"{part}/" if part else ""
            own = [name for name in tensors if name.startswith(prefix)]
            write_tensors(place, {name.removeprefix(prefix): tensors.pop(name) for name in own})
            settings = (described.pop(part) if part else described) | {"dtype": dtype}
            write_json(place / CONFIG, settings)
            if settings.get("is_encoder_decoder"):
                write_json(
                    place / "generation_config.json", generation_config(settings, vocabulary)
                )
            tokenizer.write(vocabulary, family, place, getattr(config, "length", None))
        if card is not None:
            (folder / "README.md").write_text(card, encoding="utf-8")
        return {
            path.relative_to(folder).as_posix(): path.stat().st_size
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }


def generation_config(settings, vocabulary):
    """What `generate` starts from and ends with."""
    return {
        "decoder_start_token_id": settings["decoder_start_token_id"],
        "eos_token_id": vocabulary.eos,
        "pad_token_id": vocabulary.pad,
    }


# ---- import ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Opened:
    """A folder that was looked through: what it is, and its parameters when asked for. Nothing of it was executed."""

    folder: pathlib.Path
    architectures: tuple[str, ...]
    module: Any  # what converts it, see `converter_of`
    config: Any
    tensors: Joined
    vocabulary: Vocabulary

    def params(self, config, init, allow_nonfinite=False):
        """(parameters, names of missing tensors, of unused ones) for `config`, which may differ in how it is computed.

        init: a traceable function that initialises such parameters; it is computed only if a head is missing, which is
        then taken from it. Raises FolderError, which names the tensor, where one is missing that is no head, has
        another shape, or values that are not finite unless `allow_nonfinite`.
        """
        hollow = jax.tree.map(
            lambda leaf: np.broadcast_to(np.float32(0), leaf.shape), jax.eval_shape(init)
        )
        tensors = self.tensors if allow_nonfinite else FiniteTensors(self.tensors)
        params, report = self._fill(config, tensors, hollow)
        if report.missing:
            params, report = self._fill(config, tensors, jax.device_get(jax.jit(init)()))
        return params, tuple(report.missing), tuple(report.unused)

    def _fill(self, config, tensors, params):
        try:
            return self.module.from_hf(config, tensors, params)
        except FolderError:
            raise
        except ValueError as error:
            raise FolderError(f"{self.folder}: {error}") from error


def open_model(folder, report=print):
    """Look through a Hugging Face folder of one of CONVERTERS, or of a classifier: configuration, tokenizer, headers of the tensors' files.

    `report` is told what is passed over. Raises FileNotFoundError for no folder, and FolderError or another ValueError
    that names the file, the setting or the tensor for one that cannot be imported.
    """
    folder = pathlib.Path(folder)
    described = read_config(folder, report)
    module = _family(folder, described)
    for part in module.parts:
        if not (folder / part).is_dir():
            raise FolderError(
                f"{folder}: no folder {part} in it. {', '.join(_architectures(described)) or 'This model'} is trained together with its "
                f"{part}, a model of its own: put the folder of that one there"
            )
        described[part] = read_config(folder / part, report)
    try:
        config = module.our_config(described)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{folder / CONFIG}: {error}") from error
    tensors = Joined({part: Tensors(folder / part) for part in ("", *module.parts)})
    return Opened(
        folder,
        tuple(_architectures(described)),
        module,
        config,
        tensors,
        _vocabulary(folder, config),
    )


def _architectures(described):
    names = described.get("architectures") or []
    return [str(name) for name in names] if isinstance(names, list) else [str(names)]


def _family(folder, described):
    for name in _architectures(described):
        if name in REFUSED:
            raise FolderError(f"{folder / CONFIG}: {name}: {REFUSED[name]}")
    kind = described.get("model_type")
    if kind not in CONVERTERS:
        raise FolderError(
            f"{folder / CONFIG}: model_type {kind!r} cannot be imported; {', '.join(CONVERTERS)} can"
        )
    if any(classifier.KINDS.get(name) == kind for name in _architectures(described)):
        return classifier
    return CONVERTERS[kind]


def _vocabulary(folder, config):
    try:
        vocabulary = read_vocabulary(folder)
    except FileNotFoundError as error:
        raise FolderError(f"{error}: put the model's own tokenizer files there") from error
    if vocabulary.size > config.vocab:
        raise FolderError(
            f"{folder}: its tokenizer has {vocabulary.size} ids, but vocab_size in {CONFIG} is {config.vocab}: "
            "the tokenizer is of another model"
        )
    return vocabulary
