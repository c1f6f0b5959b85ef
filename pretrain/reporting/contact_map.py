"""A map of the contacts of a protein: the probability of each pair of residues."""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import pathlib
from collections.abc import Iterable

import numpy as np

INCHES = 5.0


def draw_contact_map(
    probabilities_LL: np.ndarray,
    title: str,
    path: pathlib.Path,
    contacts: Iterable[tuple[int, int]] | None = None,
) -> None:
    """Draw the probabilities as a PNG file; known contacts are rings below the diagonal.

    Args:
      contacts: pairs of places from 0, the smaller first; None: they are not known.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES + 1, INCHES), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    end = len(probabilities_LL) + 0.5
    image = axes.imshow(probabilities_LL, cmap="Blues", vmin=0, vmax=1, extent=(0.5, end, end, 0.5))
    if contacts is not None:
        places = np.array(sorted(contacts)).reshape(-1, 2) + 1
        axes.scatter(places[:, 0], places[:, 1], s=12, facecolors="none", edgecolors="C3")
    axes.set_xlabel("residue")
    axes.set_ylabel("residue")
    figure.colorbar(image, label="probability of a contact")
    figure.suptitle(title, parse_math=False)
    figure.savefig(path, format="png")
