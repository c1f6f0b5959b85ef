"""The sizes of ModernBERT's decoder twin."""

import dataclasses
from typing import ClassVar

from models.config.modernbert import ModernBertSizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernBertDecoderConfig(ModernBertSizes):
    """Ettin's decoder, 150 M."""

    module: ClassVar[str] = "modernbert_decoder:ModernBertDecoder"
    is_causal: ClassVar[bool] = True

    # [tokens] a query of a local layer attends to the last half as many, itself included
    window: int = 128

    @property
    def mask_window(self) -> int:
        """The `window` of the causal mask of a local layer: half, as in transformers."""
        return self.window // 2
