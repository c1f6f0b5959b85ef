"""Attention weights of a text, in every head of every layer, and their HTML page.

L queries   M keys   H heads   N layers
"""

import base64
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from data.vocabulary.base import Vocabulary, show_line_ends
from models import build
from models.activations import capture_activations
from pretrain.inference import batching
from pretrain.inference.text_generation import TextWriter
from pretrain.inference.word_alignment import AlignedRow, WordAligner
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.device_feed import place_shared_rows
from pretrain.mesh.sharding import make_replicated_sharding
from pretrain.workdir.trained import Trained

MAX_PAGE_BYTES = 64 << 20  # [bytes] of a page, so that a phone's browser can open it
Text = tuple[str, str, str | None]  # (place, text, target or None)


class Token(NamedTuple):
    """The text of a piece, and whether the piece continues the word before it."""

    text: str
    joins_previous: bool


class Panel(NamedTuple):
    """One kind of attention in a text.

    Attributes:
      name: "encoder", "decoder" or "cross".
      weights_NHLM: float32; each row sums to 1.
    """

    name: str
    query_tokens: list[Token]
    key_tokens: list[Token]
    weights_NHLM: np.ndarray


def compute_attention_maps(
    trained: Trained, mesh: Mesh, texts: Sequence[Text], length: int = 64
) -> list[list[Panel]]:
    """Return the panels of each text: encoder or decoder; of an encoder-decoder both, and cross.

    An encoder-decoder without a target reads the output that it generates itself.

    Args:
      texts: (place, text, target or None) of each text.

    Raises:
      ValueError: a text is longer than the model or has no token, the model does not attend to
        tokens, there is a target and it has no decoder that reads another text, or a weight is
        not a number.
    """
    model, params = _build_model(trained, mesh)
    if not model.decodes:
        _check_targets(trained, texts)
    aligned = WordAligner(trained)
    rows = aligned([(place, text) for place, text, _ in texts])
    targets = [aligned([(place, target)])[0] if target else None for place, _, target in texts]
    _check_lengths([row for row in (*rows, *targets) if row], aligned.max_length)
    compute = jax.jit(
        partial(_compute_pair if model.decodes else _compute_single, model),
        out_shardings=make_replicated_sharding(mesh),
    )
    vocabulary, panels, writer = trained.vocabulary, [], None
    if model.decodes:
        writer = TextWriter(trained, min(length, aligned.max_length or length) - 1, 1)
    for row, target in zip(rows, targets):
        tokens = {"encoder": _list_tokens(vocabulary, row)}
        arrays = _pad_row([row.ids], aligned.max_length, vocabulary.pad)
        if writer is not None:
            ids = target.ids[:-1] if target else writer.generate_ids([row.ids], 0)[0]
            decoder_ids = [trained.run.model.start, *ids]
            written = _list_generated(vocabulary, ids)
            if target:
                written = _list_tokens(vocabulary, target)[:-1]
            tokens["decoder"] = [Token("(start)", False), *written]
            arrays += _pad_row([decoder_ids], aligned.max_length, vocabulary.pad)[:1]
        elif not model.encodes:
            tokens = {"decoder": tokens["encoder"]}
        weights = jax.device_get(
            compute(params, *(place_shared_rows(mesh, array) for array in arrays))
        )
        check_weights(row.place, *weights.values())
        sides = {name: (tokens[name], tokens[name]) for name in tokens if name in weights}
        if model.decodes:
            sides["cross"] = tokens["decoder"], tokens["encoder"]
        panels.append(
            [
                Panel(name, *side, weights[name][:, :, : len(side[0]), : len(side[1])])
                for name, side in sides.items()
            ]
        )
    return panels


def _build_model(trained: Trained, mesh: Mesh) -> tuple[Any, Any]:
    """Return (module, parameters). Raises ValueError for a model that attends to no tokens."""
    config, params = trained.body
    if config.mixes_positions:
        raise ValueError(
            f"a {type(config).__name__} attends to mixtures of all positions of a row, so there "
            "are no weights between tokens to show. `features` writes its states"
        )
    return build(config, **make_model_hooks(mesh, [])), params


def _check_targets(trained: Trained, texts: Sequence[Text]) -> None:
    """Raise ValueError if there is a target, for a model without a decoder that reads a text."""
    place = next((place for place, _, target in texts if target is not None), None)
    if place:
        raise ValueError(
            f"{place}: a target is for models that read one text and write another; this is a "
            f"{type(trained.run.model).__name__}"
        )


def _check_lengths(rows: Sequence[AlignedRow], max_length: int | None) -> None:
    """Raise ValueError if a text is longer than the model."""
    for row in rows:
        if row.is_cut:
            raise ValueError(
                f"{row.place}: a text of more than the model's {max_length} tokens: "
                f"{batching.quote_text(row.text)}"
            )


def check_weights(place: str, *weights: np.ndarray) -> None:
    """Raise ValueError, which begins with the place, if a weight is not a number."""
    if any(np.isnan(array).any() for array in weights):
        raise ValueError(
            f"{place}: an attention weight is not a number, since the parameters or what is "
            "computed from them are not finite; use another --step"
        )


def _pad_row(
    rows: Sequence[Sequence[int]], longest: int | None, pad: int | None
) -> list[np.ndarray]:
    """Return [ids, mask of real ids] of rows, padded to one of a few lengths."""
    L = batching.pad_length(max(map(len, rows)))
    return [
        np.asarray(array)
        for array in batching.pad_rows(rows, len(rows), min(L, longest or L), pad or 0)
    ]


def _compute_single(
    model: Any, params: Any, tokens_BL: jax.Array, valid_BL: jax.Array
) -> dict[str, jax.Array]:
    """Return {name: weights [N, H, L, M]} of the first row, of an encoder or a decoder."""
    if model.encodes:
        encoded = capture_activations(model, params, tokens_BL, valid_BL, method="encode")
        return {"encoder": _stack_weights(encoded, "attention")}
    return {
        "decoder": _stack_weights(
            capture_activations(model, params, tokens_BL, method="compute_states"), "attention"
        )
    }


def _compute_pair(
    model: Any, params: Any, inputs_BM: jax.Array, valid_BM: jax.Array, tokens_BL: jax.Array
) -> dict[str, jax.Array]:
    """Return {name: weights [N, H, L, M]} of the first row, of an encoder-decoder.

    Recurrent layers have no attention of their own. Raises ValueError if there is none at all.
    """
    encoded = capture_activations(model, params, inputs_BM, valid_BM, method="encode")
    decoded = capture_activations(
        model, params, encoded.output, valid_BM, tokens_BL, method="decode"
    )
    kinds = {
        "encoder": (encoded, "attention"),
        "decoder": (decoded, "attention"),
        "cross": (decoded, "cross"),
    }
    weights = {
        name: _stack_weights(observed, kind)
        for name, (observed, kind) in kinds.items()
        if kind in observed.attention_weights
    }
    if not weights:
        raise ValueError(
            f"a {type(model.config).__name__} of these settings has no attention to show: its "
            "decoder reads the last state of the encoder alone"
        )
    return weights


def _stack_weights(observed: Any, name: str) -> jax.Array:
    """Return the weights of all layers for the first row, [N, H, L, M]."""
    return jnp.stack([weights_BHLM[0] for weights_BHLM in observed.attention_weights[name]])


def _list_tokens(vocabulary: Vocabulary, row: AlignedRow) -> list[Token]:
    """Return the tokens of a row: as the text has them, special ones and blanks by their sign."""
    return [
        Token(
            (not vocabulary.is_blank(i) and show_line_ends(row.text[slice(*span)]))
            or vocabulary.format_token(i),
            word >= 0 and word == previous,
        )
        for span, i, word, previous in zip(row.spans, row.ids, row.word_of, (-1, *row.word_of))
    ]


def _list_generated(vocabulary: Vocabulary, ids: Sequence[int]) -> list[Token]:
    """Return the tokens of generated ids; an id beyond the vocabulary is shown as unknown."""
    known: list[Any] = [i if i < vocabulary.size else vocabulary.unk for i in ids]
    return [Token(vocabulary.format_token(i), not vocabulary.starts_word[i]) for i in known]


# ---- as a page ---------------------------------------------------------------


def make_page_data(
    title: str,
    texts: Sequence[Text],
    panels: Sequence[Sequence[Panel]],
    layers: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Return the data of templates/attention.html.

    Weights are little-endian 16-bit fractions of 65,535, in base64; the rounding error is 8e-6.

    Args:
      layers: numbers of the layers to show, from 1; None: all.

    Raises:
      ValueError: the page would be larger than LIMIT.
    """
    size = sum(
        2 * panel.weights_NHLM[:1].size * len(layers or panel.weights_NHLM)
        for text_panels in panels
        for panel in text_panels
    )
    if size * 4 / 3 > MAX_PAGE_BYTES:
        raise ValueError(
            f"the page would have {math.ceil(size * 4 / 3 / 1e6):,} MB: give fewer or shorter "
            f"texts, or --layers of {MAX_PAGE_BYTES >> 20} MiB in all"
        )
    return {
        "title": title,
        "texts": [
            {"text": text, "panels": [_encode_panel(panel, layers) for panel in text_panels]}
            for (_, text, _), text_panels in zip(texts, panels)
        ],
    }


def _encode_panel(panel: Panel, layers: Sequence[int] | None) -> dict[str, Any]:
    """Return the JSON value of a panel."""
    numbers = layers or range(1, len(panel.weights_NHLM) + 1)
    weights_NHLM = panel.weights_NHLM[[number - 1 for number in numbers]]
    shares = np.rint(np.clip(weights_NHLM, 0, 1) * 65535).astype("<u2")
    return {
        "name": panel.name,
        "readers": panel.query_tokens,
        "read": panel.key_tokens,
        "layers": list(numbers),
        "heads": weights_NHLM.shape[1],
        "weights": base64.b64encode(shares.tobytes()).decode(),
    }
