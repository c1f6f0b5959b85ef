"""Who reads whom in a text: the weights of every head of every layer, for a page and for pictures.

L readers   M what is read   H heads   N layers
"""

# matplotlib is optional.
# pyright: reportMissingImports=false

import base64
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models import build
from models.activations import observe
from pretrain.distributed.device_feed import place_whole
from pretrain.distributed.model_hooks import make_model_hooks
from pretrain.distributed.sharding import replicated
from pretrain.inference import batching
from pretrain.inference.generate import Writer
from pretrain.inference.word_alignment import Aligned

LIMIT = 64 << 20  # bytes of weights in a page, which a telephone's browser still opens


class Token(NamedTuple):
    """What is shown of a piece, and whether it goes on the word before it."""

    text: str
    glued: bool


class Panel(NamedTuple):
    """One kind of attention in a text: `readers` L, `read` M, and float32 weights [N, H, L, M], whose rows sum to 1."""

    name: str
    readers: list[Token]
    read: list[Token]
    weights_NHLM: np.ndarray


def attention_maps(trained, mesh, texts, length=64):
    """For each (place, text, target or None) its panels: `encoder`, or `decoder`, or both and `cross` of an encoder-decoder.

    Where such a model is given no target, it reads what it writes itself, at most `length` tokens. Raises ValueError for a text that is longer than
    the model, or of which the tokenizer leaves nothing, and for a target where the model has no decoder that reads another text.
    """
    config, params = trained.body
    model = build(config, **make_model_hooks(mesh, []))
    pairs = hasattr(model, "decode")
    if not pairs and (
        given := next((where for where, _, target in texts if target is not None), None)
    ):
        raise ValueError(
            f"{given}: a target is for models that read one text and write another; this is a {type(trained.run.model).__name__}"
        )
    aligned = Aligned(trained)
    rows = aligned([(where, text) for where, text, _ in texts])
    targets = [target and aligned([(where, target)])[0] for where, _, target in texts]
    for row in (one for one in (*rows, *targets) if one and one.cut):
        raise ValueError(
            f"{row.place}: a text of more than the model's {aligned.longest} tokens: {batching.cut(row.text)}"
        )
    compute = jax.jit(partial(_pair if pairs else _alone, model), out_shardings=replicated(mesh))
    vocabulary, found = trained.vocabulary, []
    if pairs:
        writer = Writer(trained, min(length, aligned.longest or length) - 1, 1)
    for row, target in zip(rows, targets):
        tokens = {"encoder": _tokens(row)}
        arrays = _padded([row.ids], aligned.longest, vocabulary.pad)
        if pairs:
            ids = target.ids[:-1] if target else writer.written([row.ids], 0)[0]
            read = [getattr(trained.run.model, "start", 0), *ids]
            tokens["decoder"] = [
                Token("(start)", False),
                *(_tokens(target)[:-1] if target else _written(vocabulary, ids)),
            ]
            arrays += _padded([read], aligned.longest, vocabulary.pad)[:1]
        elif not hasattr(model, "encode"):
            tokens = {"decoder": tokens["encoder"]}
        weights = jax.device_get(compute(params, *(place_whole(mesh, array) for array in arrays)))
        sides = {name: (tokens[name], tokens[name]) for name in tokens} | (
            {"cross": (tokens["decoder"], tokens["encoder"])} if pairs else {}
        )
        found.append(
            [
                Panel(name, *side, weights[name][:, :, : len(side[0]), : len(side[1])])
                for name, side in sides.items()
            ]
        )
    return found


def _padded(rows, longest, pad):
    """(ids, what of them is there), of few lengths."""
    L = batching.padded(max(map(len, rows)))
    return [
        np.asarray(array)
        for array in batching.fill(rows, len(rows), min(L, longest or L), pad or 0)
    ]


def _alone(model, params, tokens_BL, valid_BL):
    """{name: [N, H, L, M]} of the first row."""
    if hasattr(model, "encode"):
        return {
            "encoder": _stacked(
                observe(model, params, tokens_BL, valid_BL, method="encode"), "attention"
            )
        }
    return {"decoder": _stacked(observe(model, params, tokens_BL, method="states"), "attention")}


def _pair(model, params, inputs_BM, valid_BM, tokens_BL):
    encoded = observe(model, params, inputs_BM, valid_BM, method="encode")
    decoded = observe(model, params, encoded.output, valid_BM, tokens_BL, method="decode")
    return {
        "encoder": _stacked(encoded, "attention"),
        "decoder": _stacked(decoded, "attention"),
        "cross": _stacked(decoded, "cross"),
    }


def _stacked(inside, name):
    return jnp.stack([weights_BHLM[0] for weights_BHLM in inside.weights[name]])


def _tokens(row):
    """A row's pieces as they stand in the text; special ones by their name."""
    return [
        Token(row.text[slice(*span)] or piece, word >= 0 and word == before)
        for span, piece, word, before in zip(row.spans, row.pieces, row.word_of, (-1, *row.word_of))
    ]


def _written(vocabulary, ids):
    known = [i if i < vocabulary.size else vocabulary.unk for i in ids]
    return [
        Token(vocabulary.decode([i]).strip() or vocabulary.pieces[i], not vocabulary.starts_word[i])
        for i in known
    ]


# ---- as a page ---------------------------------------------------------------


def as_data(title, texts, panels, layers=None):
    """What templates/attention.html draws. layers: numbers from 1, all unless given. Raises ValueError where the page would be too large.

    Weights are 16-bit shares of 65,535, little-endian, as base64: half a unit is 8e-6.
    """
    size = sum(
        2 * panel.weights_NHLM[:1].size * len(layers or panel.weights_NHLM)
        for each in panels
        for panel in each
    )
    if size * 4 / 3 > LIMIT:
        raise ValueError(
            f"the page would have {math.ceil(size * 4 / 3 / 1e6):,} MB: give fewer or shorter texts, or --layers of {LIMIT >> 20} MiB in all"
        )
    return {
        "title": title,
        "texts": [
            {"text": text, "panels": [_panel(panel, layers) for panel in each]}
            for (_, text, _), each in zip(texts, panels)
        ],
    }


def _panel(panel, layers):
    numbers = layers or range(1, len(panel.weights_NHLM) + 1)
    weights_NHLM = panel.weights_NHLM[[number - 1 for number in numbers]]
    shares = np.rint(np.clip(weights_NHLM, 0, 1) * 65535).astype("<u2")
    return {
        "name": panel.name,
        "readers": panel.readers,
        "read": panel.read,
        "layers": list(numbers),
        "heads": weights_NHLM.shape[1],
        "weights": base64.b64encode(shares.tobytes()).decode(),
    }


# ---- as pictures -------------------------------------------------------------


def draw(panel, layer, heads, path):
    """One layer's heads side by side, as a PNG. layer, heads: numbers from 1."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(len(heads), 4)
    L, M = panel.weights_NHLM.shape[2:]
    figure = Figure(
        figsize=(columns * (1.2 + 0.16 * M), math.ceil(len(heads) / columns) * (1.2 + 0.16 * L)),
        dpi=120,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    for axes, head in zip(
        figure.subplots(math.ceil(len(heads) / columns), columns, squeeze=False).flat, heads
    ):
        axes.imshow(
            panel.weights_NHLM[layer - 1, head - 1], cmap="Blues", vmin=0, vmax=1, aspect="auto"
        )
        # A text's dollar signs are no formula.
        axes.set_xticks(
            range(M),
            [token.text for token in panel.read],
            rotation=90,
            fontsize=7,
            parse_math=False,
        )
        axes.set_yticks(
            range(L), [token.text for token in panel.readers], fontsize=7, parse_math=False
        )
        axes.set_title(f"{panel.name}, layer {layer}, head {head}", fontsize=8)
    for axes in figure.axes[len(heads) :]:
        axes.remove()
    figure.savefig(path)
