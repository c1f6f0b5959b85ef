"""Attention weights of a text as pictures; the maps come from attention_maps.py."""

# matplotlib is optional.
# pyright: reportMissingImports=false

import math
import os
from collections.abc import Sequence
from typing import Any

from pretrain.inference.attention_maps import Panel
from pretrain.reporting.fonts import choose_fonts, using_fonts


def draw_panel(
    panel: Panel, layer: int, heads: Sequence[int], path: str | os.PathLike[str] | Any
) -> list[str]:
    """Draw heads of one layer side by side, as a PNG; layer, heads: numbers from 1.

    Returns:
      The letters that no installed font has, which are drawn as boxes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    read, readers = (
        [token.text for token in side] for side in (panel.key_tokens, panel.query_tokens)
    )
    families, missing = choose_fonts([*read, *readers])
    columns = min(len(heads), 4)
    L, M = panel.weights_NHLM.shape[2:]
    with using_fonts(families):
        figure = Figure(
            figsize=(
                columns * (1.2 + 0.16 * M),
                math.ceil(len(heads) / columns) * (1.2 + 0.16 * L),
            ),
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
            # Dollar signs of a text are not math.
            axes.set_xticks(range(M), read, rotation=90, fontsize=7, parse_math=False)
            axes.set_yticks(range(L), readers, fontsize=7, parse_math=False)
            axes.set_title(f"{panel.name}, layer {layer}, head {head}", fontsize=8)
        for axes in figure.axes[len(heads) :]:
            axes.remove()
        figure.savefig(path)
    return missing
