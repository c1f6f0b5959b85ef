"""The contextual vectors of one word in many sentences, as a picture that separates its senses.

Devlin et al. 2018 describe the encoder; Wiedemann et al. 2019 show its senses so.

N occurrences   R words of all texts   D width
"""

# scikit-learn and matplotlib are optional.
# pyright: reportMissingImports=false

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pretrain.host.extras import how_to_install
from pretrain.reporting.fonts import choose_fonts, using_fonts
from pretrain.reporting.label_places import draw_labels

EDGES = re.compile(r"^\W+|\W+$")  # marks around a word
MAX_ANNOTATED = 60  # largest number of points that are annotated with their words
PERPLEXITY = 30.0  # of t-SNE; less if there are few points


class Occurrence(NamedTuple):
    """An occurrence of the word.

    Attributes:
      row: the index of its vector.
      text: the index of its text.
    """

    row: int
    text: int
    around: str


def find_occurrences(
    word: str, texts: Sequence[str], arrays: Mapping[str, np.ndarray], x_RD: np.ndarray
) -> list[Occurrence]:
    """Return the occurrences of a word in texts, whatever its case and the marks around it.

    Words without a piece have no vector and are skipped.

    Args:
      arrays: `offsets` and `spans` of their words, as `features` writes them.
    """
    occurrences = []
    for n, text in enumerate(texts):
        first, end = arrays["offsets"][n : n + 2].tolist()
        words = [text[slice(*span)] for span in arrays["spans"][first:end]]
        for w, candidate in enumerate(words):
            if strip_marks(candidate) == strip_marks(word) and not np.isnan(x_RD[first + w]).any():
                occurrences.append(Occurrence(first + w, n, " ".join(words[max(w - 2, 0) : w + 3])))
    return occurrences


def strip_marks(word: str) -> str:
    """Return a word without the marks around it, case-folded."""
    return EDGES.sub("", word).casefold()


def project_pca(x_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates [N, 2] along the two principal axes, and their shares of variance."""
    x_ND = x_ND.astype(np.float64) - x_ND.mean(axis=0, dtype=np.float64)
    left, singular, _ = np.linalg.svd(x_ND, full_matrices=False)
    return left[:, :2] * singular[:2], singular[:2] ** 2 / max((singular**2).sum(), 1e-30)


def project_tsne(x_ND: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return t-SNE coordinates [N, 2] (van der Maaten and Hinton 2008).

    Raises ValueError if scikit-learn is not installed.
    """
    try:
        from sklearn.manifold import TSNE
    except ModuleNotFoundError as error:
        raise ValueError(f"t-SNE needs scikit-learn: {how_to_install('metrics')}") from error
    return TSNE(
        perplexity=min(PERPLEXITY, (len(x_ND) - 1) / 3),
        init="pca",
        learning_rate="auto",
        random_state=seed,
    ).fit_transform(x_ND)


def project_vectors(x_ND: np.ndarray) -> dict[str, np.ndarray]:
    """Return {title: coordinates [N, 2]} of vectors by PCA and by t-SNE.

    Raises ValueError if the vectors are the same up to rounding: t-SNE divides by their spread.
    """
    if np.ptp(x_ND, axis=0).max() <= 1e-5 * np.abs(x_ND).max():
        raise ValueError(
            f"all {len(x_ND)} occurrences have the same hidden state, so a projection shows "
            "nothing; take another --layer, or other texts"
        )
    flat_N2, shares = project_pca(x_ND)
    return {f"PCA ({shares.sum():.0%} of the variance)": flat_N2, "t-SNE": project_tsne(x_ND)}


def draw_points(
    projected: Mapping[str, np.ndarray],
    labels: Sequence[str | None],
    around: Sequence[str],
    title: str,
    path: str | os.PathLike[str] | Any,
) -> tuple[int, list[str]]:
    """Draw projections side by side as a PNG, with a colour for each label.

    Args:
      projected: {title: points [N, 2]}.
      around: the words around each point, drawn if there are at most MAX_ANNOTATED points, where
        they cover no point and no other words.

    Returns:
      How many words around points found no room, and the letters in the picture that no installed
      font has.
    """
    kinds = [kind or "no sense given" for kind in dict.fromkeys(labels)]
    shown = around if len(around) <= MAX_ANNOTATED else ()
    families, missing = choose_fonts([*shown, *kinds, *projected, title])
    with using_fonts(families):
        drawn = _draw_figure(projected, labels, shown, title, path)
    letters = set().union(*drawn, *kinds, *projected, title)
    return len(shown) * len(projected) - len(drawn), [
        letter for letter in missing if letter in letters
    ]


def _draw_figure(
    projected: Mapping[str, np.ndarray],
    labels: Sequence[str | None],
    around: Sequence[str],
    title: str,
    path: str | os.PathLike[str] | Any,
) -> list[str]:
    """Draw the picture of `draw_points` and return the words around points that found room.

    around: the words around each point; () for none.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 * len(projected), 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    kinds = list(dict.fromkeys(labels))
    panels = list(figure.subplots(1, len(projected), squeeze=False).flat)
    for axes, (name, points_N2) in zip(panels, projected.items()):
        for number, kind in enumerate(kinds):
            mine = [n for n, label in enumerate(labels) if label == kind]
            axes.scatter(
                *points_N2[mine].T,
                s=28,
                color=f"C{number % 10}",
                label=f" {kind or 'no sense given'}",
            )
        axes.set(title=name, xticks=[], yticks=[])
        axes.margins(0.15)
    if kinds != [None]:
        handles, names = panels[0].get_legend_handles_labels()
        # Outside of the axes, where it covers no words.
        legend = figure.legend(handles, names, loc="outside lower center", ncols=min(len(kinds), 6))
        for text in legend.get_texts():
            text.set_parse_math(False)
    figure.suptitle(title, parse_math=False)
    drawn = []
    if around:
        figure.draw_without_rendering()  # the layout that the places of the words depend on
        figure.set_layout_engine("none")
        for axes, points_N2 in zip(panels, projected.values()):
            drawn += draw_labels(axes, points_N2, around, fontsize=6)
    figure.savefig(path, format="png")
    return drawn
