"""The vectors of texts by an embedder, or by the states of any other encoder.

Rows are sorted by length and padded to few lengths, so that little padding is computed.

N texts   B batch   L row length   D width
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from data.examples.labelled_examples import parse_text
from data.rows.frames import find_padding
from models import build
from models.config.base import TakesHead
from models.config.embedder import EmbedderConfig
from models.config.heads import LIMITLESS, HeadedConfig
from pretrain.convert import find_model_family, find_model_type, tokenizer
from pretrain.inference.batching import SHORTEST, make_batches, pad_rows, round_up_to_power
from pretrain.kernels.model_hooks import make_local_hooks

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained

MANY = 512  # texts for which less padding is worth more compilations
UNLIMITED = 512  # [tokens] the longest row of a model without a limit of its own


def choose_length(length: int, steps: int = 2) -> int:
    """Return the length to which a row is padded.

    steps: lengths of an octave, each of which is compiled: 2 are 16, 24, 32, 48, 64, 96 and so on.

    >>> [choose_length(length) for length in (1, 17, 25, 33, 100)]
    [16, 24, 32, 48, 128]
    """
    if length <= SHORTEST:
        return SHORTEST
    step = max(round_up_to_power(length) // (2 * steps), SHORTEST // 2)
    return -(-length // step) * step


def make_embedder(trained: Trained, pooling: str | None) -> tuple[EmbedderConfig, dict[str, Any]]:
    """Return the configuration and the parameters of an embedder, or of an encoder as one.

    pooling: as of `EmbedderConfig`; None: an embedder's own, else the mean, or a decoder's last.

    Raises ValueError if the model has no encoder.
    """
    model, params = trained.run.model, trained.params
    if isinstance(model, EmbedderConfig):
        return dataclasses.replace(model, pooling=pooling or model.pooling), params
    if not isinstance(model.backbone, TakesHead):
        raise ValueError(
            f"{trained.workdir}: a {type(model).__name__} gives no states of whole texts; use an "
            "encoder, or a decoder that reads from left to right"
        )
    encoder: Any = model.backbone.as_encoder()
    own = params["encoder"] if isinstance(model, HeadedConfig) else params
    own = find_model_family(model).take_encoder(model.backbone, own)
    chosen: Any = pooling or ("last" if encoder.is_causal else "mean")
    return EmbedderConfig(encoder=encoder, pooling=chosen), {"encoder": own}


class TextEmbedder:
    """Computes the vectors of texts.

    Attributes:
      width: the number of components of a vector.
    """

    def __init__(
        self,
        trained: Trained,
        *,
        pooling: str | None = None,
        width: int | None = None,
        batch_size: int = 32,
        prompt: str = "",
    ) -> None:
        """Open a model.

        Args:
          pooling: of the states, see `make_embedder`.
          width: the first components that are the vector; None: all.
          batch_size: texts of a batch.
          prompt: what stands before each text.

        Raises:
          ValueError: the model has no encoder, or `width` is not in its vectors.
        """
        self.config, self.params = make_embedder(trained, pooling)
        self.width = self.config.encoder.width if width is None else width
        if not 1 <= self.width <= self.config.encoder.width:
            raise ValueError(
                f"--width {self.width}: a vector of {trained.workdir} has 1 to "
                f"{self.config.encoder.width} components"
            )
        self.batch_size, self.prompt = batch_size, prompt
        self.pad = find_padding(trained.vocabulary)
        self.length = UNLIMITED if self.config.length == LIMITLESS else self.config.length
        self.tokenizer = tokenizer.build_tokenizer(
            trained.vocabulary, find_model_type(self.config), is_labelled=True
        )
        self.tokenizer.enable_truncation(self.length)
        model = build(self.config, **make_local_hooks())
        self.compute = jax.jit(partial(model.apply, method="embed"))

    def __call__(self, texts: Sequence[str], places: Sequence[str] | None = None) -> np.ndarray:
        """Return the vectors of texts, float32 [N, D].

        Args:
          places: names of the texts in errors; None: their numbers.

        Raises:
          ValueError: a text is empty, or a vector is not finite; the message names the text.
        """
        places = places or [f"text {number}" for number in range(1, len(texts) + 1)]
        cleaned = [
            self.prompt + parse_text(text, place) for text, place in zip(texts, places, strict=True)
        ]
        encodings = self.tokenizer.encode_batch_fast(cleaned)
        if num_cut := sum(bool(encoding.overflowing) for encoding in encodings):
            print(
                f"{num_cut:,} of {len(texts):,} texts are longer than {self.length} tokens and "
                "were truncated",
                file=sys.stderr,
            )
        vectors_ND = np.zeros((len(texts), self.width), np.float32)
        steps = 4 if len(texts) >= MANY else 2
        lengths = [min(choose_length(len(row), steps), self.length) for row in encodings]
        for batch in make_batches(lengths, self.batch_size):
            rows, L = [encodings[i] for i in batch], lengths[batch[0]]
            B = min(self.batch_size, round_up_to_power(len(rows)))
            ids_BL, valid_BL = pad_rows([row.ids for row in rows], B, L, self.pad)
            types_BL, _ = pad_rows([row.type_ids for row in rows], B, L, 0)
            computed_BD = self.compute({"params": self.params}, ids_BL, valid_BL, types_BL)
            vectors_ND[batch] = jax.device_get(computed_BD)[: len(rows), : self.width]
        if not (is_finite_N := np.isfinite(vectors_ND).all(axis=1)).all():
            raise ValueError(
                f"{places[int(is_finite_N.argmin())]}: its vector is not finite, since the "
                "parameters are not; use another --step"
            )
        return normalize_rows(vectors_ND) if self.config.normalize else vectors_ND


def normalize_rows(vectors_ND: np.ndarray) -> np.ndarray:
    """Return vectors of length 1; a vector of zeros stays."""
    lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return vectors_ND / np.maximum(lengths_N1, 1e-12)
