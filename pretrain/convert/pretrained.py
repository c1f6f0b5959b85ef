"""Conversion of pretrained models, by the `HuggingFaceMap` of their family.

If one of our models is several models of transformers, the first is in the folder itself and the
others are in subfolders. Their configurations have the names of the subfolders as keys, and their
tensors have names that begin with `SUBFOLDER/`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from data.images.encoding import ImageEncoding
from data.rows.frames import find_padding
from data.vocabulary.base import Vocabulary
from models.config.base import TEACHER, Config
from pretrain.convert import config_keys, name_map
from pretrain.families import FAMILIES
from pretrain.families.family_record import Family
from pretrain.families.key_rules import Fixed, KeyRules, name_keys
from pretrain.families.tensor_steps import run_steps


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
        own = {name: part for name, part in params.items() if f"{name}/" != TEACHER}
        tensors = name_map.export_tensors(
            own, hf_map.make_rules(config), hf_map.find_depths(config)
        )
        return dict(run_steps(hf_map.after_export, config, tensors))

    def from_hf(
        self, config: Any, tensors: Mapping[str, np.ndarray], init_params: dict[str, Any]
    ) -> tuple[dict[str, Any], name_map.ImportReport]:
        """Return (parameters, report) from {name: array}; a missing head stays as initialized.

        Raises ValueError, which names a tensor that is missing otherwise, has no place in the
        model, has the wrong shape or dtype, or differs from a copy that must be equal.
        """
        hf_map = self.family.require_hugging_face()
        return name_map.fill_params(
            run_steps(hf_map.before_import, config, tensors),
            hf_map.make_rules(config),
            hf_map.find_depths(config),
            init_params,
            head_prefixes=hf_map.heads,
            body_prefixes=hf_map.body_prefixes,
            ignored_patterns=hf_map.buffers,
        )

    def to_hf_config(self, config: Any, encoding: Vocabulary | ImageEncoding) -> dict[str, Any]:
        """Return the content of config.json. Raises ValueError as `to_hf`."""
        hf_map = self.family.require_hugging_face()

        def describe_model(architecture: str, keys: KeyRules) -> dict[str, Any]:
            entries = config_keys.write_keys(config, self._join_keys(keys), architecture)
            settings = hf_map.settings(config, encoding)
            settings = settings | self._describe_padding(encoding) | settings
            entries |= settings
            own = {"architectures": [architecture], **entries, "dtype": "float32"}
            return config_keys.nest_parts(own)

        return describe_model(hf_map.architecture, hf_map.keys) | {
            name: describe_model(second.architecture, second.keys)
            for name, second in hf_map.second_models.items()
        }

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
        hf_config = config_keys.replace_aliases(hf_config, hf_map.keys)
        hf_config = hf_map.prepare(config_keys.flatten_parts(hf_config, hf_map.keys))
        ours = config_keys.read_keys(hf_config, kind, self._join_keys(hf_map.keys))
        for name, second in hf_map.second_models.items():
            theirs = hf_config[name] if name in hf_config else second.describe_absent(hf_config)
            theirs = hf_map.prepare(dict(theirs))
            own = config_keys.read_keys(theirs, kind, self._join_keys(second.keys))
            for field, key in name_keys(hf_map.keys).items():
                if ours[field] != own.get(field, ours[field]):
                    raise ValueError(
                        f"{key} is {ours[field]!r}, and {own[field]!r} in {name}/config.json; "
                        f"{kind.__name__} has one for both"
                    )
            ours |= own
        return kind(**hf_map.read(hf_config, ours))

    def _join_keys(self, keys: KeyRules) -> KeyRules:
        """Return the rules of the keys, after the rule of `model_type`."""
        return (Fixed("model_type", self.family.require_hugging_face().model_type), *keys)


# {model_type: the converter of a family that is imported}
CONVERTERS = {
    family.hugging_face.model_type: Converter(family)
    for family in FAMILIES.values()
    if family.hugging_face and family.is_imported
}
