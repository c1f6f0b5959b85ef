"""Conversion of pretrained models, by the `HuggingFaceMap` of their family.

If one of our models is several models of transformers, the first is in the folder itself and the
others are in subfolders. Their configurations have the names of the subfolders as keys, and their
tensors have names that begin with `SUBFOLDER/`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from data.images.encoding import ImageEncoding
from data.rows.frames import find_padding
from data.vocabulary.base import Vocabulary
from models.config.base import Config
from pretrain.convert import config_fields, name_map, renamed_tensors
from pretrain.families import FAMILIES
from pretrain.families.family_record import Family, Fields, HuggingFaceMap


@dataclasses.dataclass(frozen=True)
class Converter:
    """The functions with which `read_write` converts models of one family."""

    family: Family

    @property
    def subfolders(self) -> tuple[str, ...]:
        """The names of the subfolders."""
        return tuple(self.family.require_hugging_face().second_models)

    def to_hf(self, config: Any, params: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return {name: float32 array}, the content of `model.safetensors`.

        Raises ValueError if transformers has no such model.
        """
        hf_map = self.family.require_hugging_face()
        if hf_map.subtree is not None:
            params = {name: params[name] for name in hf_map.subtree}
        tensors = name_map.export_tensors(
            params, hf_map.make_rules(config), hf_map.find_depths(config)
        )
        duplicates = {**hf_map.find_duplicates(config), **hf_map.unread_copies}
        tensors |= {copy: tensors[name] for copy, name in duplicates.items()}
        tensors |= {name: make(config) for name, make in hf_map.constants.items()}
        zeros = {name: np.zeros(shape(config), np.float32) for name, shape in hf_map.zeros.items()}
        return tensors | zeros

    def from_hf(
        self,
        config: Any,
        tensors: Mapping[str, np.ndarray],
        init_params: dict[str, Any],
    ) -> tuple[dict[str, Any], name_map.ImportReport]:
        """Return (parameters, report) from {name: array}; a missing head stays as initialized.

        Raises ValueError, which names a tensor that is missing otherwise, has no place in the
        model, has the wrong shape or dtype, or differs from a copy that must be equal.
        """
        hf_map = self.family.require_hugging_face()
        rules, depths = hf_map.make_rules(config), hf_map.find_depths(config)
        tensors = renamed_tensors.rename_tensors(tensors, make_renamer(hf_map, tensors))
        tensors = renamed_tensors.RenamedTensors(
            tensors, {name: name for name in tensors if name not in hf_map.unread_copies}
        )
        tensors = renamed_tensors.merge_copies(
            tensors, {**hf_map.find_duplicates(config), **hf_map.find_copies(config)}
        )
        tensors = drop_constants(hf_map, config, drop_zeros(hf_map, tensors))
        needed = {name for match in name_map.expand_rules(rules, depths) for name in match.theirs}
        stand_ins = {name: other for name, other in hf_map.stand_ins.items() if name in needed}
        if stand_ins.keys() - set(tensors):
            tensors = renamed_tensors.RenamedTensors(
                tensors, stand_ins | {name: name for name in tensors}
            )
        return name_map.fill_params(
            tensors,
            rules,
            depths,
            init_params,
            head_prefixes=hf_map.heads,
            body_prefixes=hf_map.body_prefixes,
            ignored_patterns=hf_map.buffers,
        )

    def to_hf_config(self, config: Any, encoding: Vocabulary | ImageEncoding) -> dict[str, Any]:
        """Return the content of config.json. Raises ValueError as `to_hf`."""
        hf_map, known = self.family.require_hugging_face(), {}
        for name, value in hf_map.constant_fields.items():
            if getattr(config, name) != value:
                raise ValueError(
                    f"model.{name}={getattr(config, name):g} cannot be exported: "
                    f"{hf_map.architecture} has {value:g}"
                )
        hf_map.check(config, encoding)

        def describe_model(architecture: str, fields: Fields) -> dict[str, Any]:
            sizes = config_fields.write_fields(config, fields, hf_map.fixed)
            twins = {twin: sizes[key] for twin, key in hf_map.equal_keys.items()}
            settings = hf_map.settings(config, encoding)
            settings = settings | self._describe_padding(encoding) | settings
            return {
                "architectures": [architecture],
                **sizes,
                **twins,
                **settings,
                "dtype": "float32",
            }

        for name, second in hf_map.second_models.items():
            known[name] = describe_model(second.architecture, second.fields)
        return describe_model(hf_map.architecture, hf_map.fields) | known

    def _describe_padding(self, encoding: Vocabulary | ImageEncoding) -> dict[str, Any]:
        """Return the id that pads the rows of a model of a stream of texts, if there is one."""
        if isinstance(encoding, ImageEncoding) or not self.family.joins_texts:
            return {}
        has_padding = encoding.pad is not None or encoding.eos is not None
        return {"pad_token_id": find_padding(encoding)} if has_padding else {}

    def from_hf_config(self, hf_config: Mapping[str, Any]) -> Config:
        """Return the configuration in a config.json; the subfolders' ones are under their names.

        That of an absent subfolder is derived, as the record of the family says.

        Raises ValueError, which names a setting that our model does not have.
        """
        hf_map, kind = self.family.require_hugging_face(), cast(Any, self.family.config)
        hf_config = config_fields.replace_aliases(hf_config, hf_map.aliases)
        found = [self._read_fields(hf_config, hf_map.fields)]
        for name, second in hf_map.second_models.items():
            theirs = hf_config[name] if name in hf_config else second.describe_absent(hf_config)
            found.append(self._read_fields(theirs, second.fields))
            for field, key, _ in hf_map.fields:
                if found[0][field] != found[-1].get(field, found[0][field]):
                    raise ValueError(
                        f"{key} is {found[0][field]!r}, and {found[-1][field]!r} in "
                        f"{name}/config.json; {kind.__name__} has one for both"
                    )
        ours = {field: value for fields in found for field, value in fields.items()}
        return kind(**{**hf_map.read(hf_config, ours), **hf_map.constant_fields})

    def _read_fields(self, hf_config: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
        """Return {our field: value} of one config.json."""
        hf_map, kind = self.family.require_hugging_face(), self.family.config
        theirs = hf_map.prepare(config_fields.drop_nulls(hf_config))
        for twin, key in hf_map.equal_keys.items():
            if twin in theirs and theirs[twin] != theirs.get(key):
                raise ValueError(
                    f"{twin} is {theirs[twin]!r} and {key} {theirs.get(key)!r}; "
                    f"{kind.__name__} has one for both"
                )
        fixed = {**hf_map.fixed, **hf_map.read_only}
        return config_fields.read_fields(
            {**hf_map.absent_values, **theirs}, kind, fields, fixed, hf_map.same_values
        )


# {model_type: the converter of a family that is imported}
CONVERTERS = {
    family.hugging_face.model_type: Converter(family)
    for family in FAMILIES.values()
    if family.hugging_face and family.hugging_face.imported
}


def make_renamer(hf_map: HuggingFaceMap, tensors: Mapping[str, np.ndarray]) -> Callable[[str], str]:
    """Return a function that maps a tensor's name to the current name.

    It adds the prefix if the tensors belong to a bare encoder, and replaces outdated names.
    """
    prefixed = any(name.startswith(hf_map.prefix) for name in tensors)

    def rename_tensor(name: str) -> str:
        if not prefixed and name.startswith(hf_map.bare):
            name = hf_map.prefix + name
        for old, new in hf_map.renamed:
            name = name.replace(old, new)
        return name

    return rename_tensor


def drop_zeros(
    hf_map: HuggingFaceMap, tensors: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Return the tensors without those that must be 0. Raises ValueError if one is not 0."""
    found = hf_map.zeros.keys() & set(tensors)
    for name in found:
        if np.any(tensors[name]):
            raise ValueError(f"{name} is not 0: {hf_map.zeros_reason}")
    return renamed_tensors.RenamedTensors(
        tensors, {name: name for name in tensors if name not in found}
    )


def drop_constants(
    hf_map: HuggingFaceMap, config: Any, tensors: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Return the tensors without the constants. Raises ValueError if one has other values."""
    found = hf_map.constants.keys() & set(tensors)
    for name in found:
        expected, seen = hf_map.constants[name](config), np.asarray(tensors[name], np.float32)
        if seen.shape != expected.shape or not np.allclose(seen, expected, rtol=1e-2, atol=0):
            raise ValueError(
                f"{name} is {list(seen.shape)} from {seen.flat[0] if seen.size else 'nothing'}; "
                f"{type(config).__name__} has the constant {list(expected.shape)} from "
                f"{expected.flat[0]:g} to {expected.flat[-1]:g}, and no other"
            )
    return renamed_tensors.RenamedTensors(
        tensors, {name: name for name in tensors if name not in found}
    )
