"""One word in many sentences as a picture: where a contextual encoder puts its senses (Devlin et al. 2018; shown so by Wiedemann et al. 2019).

N occurrences   D width
"""

# scikit-learn and matplotlib are optional.
# pyright: reportMissingImports=false

import re
from typing import NamedTuple

import numpy as np

from pretrain.extras import how_to_install

EDGES = re.compile(r"^\W+|\W+$")  # what stands around a word and is not the word
NAMED = 60  # points at most whose words are written beside them
PERPLEXITY = 30.0  # of t-SNE; less where there are few points


class Occurrence(NamedTuple):
    """row: the number of its vector. text: the number of its text. around: the word with two words on either side."""

    row: int
    text: int
    around: str


def occurrences(word, texts, arrays, x_RD):
    """Each `Occurrence` of a word in texts, in either case, whatever marks stand around it; one that left no piece is none.

    arrays: `offsets` and `spans` of the words, as `features` has them; x_RD: their vectors.
    """
    found = []
    for n, text in enumerate(texts):
        first, behind = arrays["offsets"][n : n + 2].tolist()
        words = [text[slice(*span)] for span in arrays["spans"][first:behind]]
        for w, one in enumerate(words):
            if bare(one) == bare(word) and not np.isnan(x_RD[first + w]).any():
                found.append(Occurrence(first + w, n, " ".join(words[max(w - 2, 0) : w + 3])))
    return found


def bare(word):
    """A word without the marks around it, in one case."""
    return EDGES.sub("", word).casefold()


def pca(x_ND):
    """The two directions of the largest variance [N, 2], and their shares of it."""
    x_ND = x_ND.astype(np.float64) - x_ND.mean(axis=0, dtype=np.float64)
    left, singular, _ = np.linalg.svd(x_ND, full_matrices=False)
    return left[:, :2] * singular[:2], singular[:2] ** 2 / max((singular**2).sum(), 1e-30)


def tsne(x_ND, seed=0):
    """[N, 2] of which neighbours stay neighbours (van der Maaten and Hinton 2008). Raises ValueError without scikit-learn."""
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


def projections(x_ND):
    """{title: points [N, 2]} of the same vectors."""
    flat_N2, shares = pca(x_ND)
    return {f"PCA ({shares.sum():.0%} of the variance)": flat_N2, "t-SNE": tsne(x_ND)}


def draw(projected, labels, around, title, path):
    """Points side by side as a PNG, a colour for each label, and what stands around the word beside those of a small picture.

    projected: {title: points [N, 2]}; labels: N of str or None; around: N of str.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 * len(projected), 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    kinds = list(dict.fromkeys(labels))
    for axes, (name, points_N2) in zip(
        figure.subplots(1, len(projected), squeeze=False).flat, projected.items()
    ):
        for number, kind in enumerate(kinds):
            mine = [n for n, label in enumerate(labels) if label == kind]
            axes.scatter(
                *points_N2[mine].T,
                s=28,
                color=f"C{number % 10}",
                label=f" {kind or 'no sense given'}",
            )
        for point, words in zip(points_N2, around if len(around) <= NAMED else ()):
            axes.annotate(
                words,
                point,
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=6,
                parse_math=False,
            )
        axes.set(title=name, xticks=[], yticks=[])
        axes.margins(0.15)
        if kinds != [None]:
            for text in axes.legend().get_texts():
                text.set_parse_math(False)
    figure.suptitle(title, parse_math=False)
    figure.savefig(path, format="png")
