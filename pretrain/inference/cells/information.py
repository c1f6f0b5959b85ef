"""Mutual information of cells and a property, in bits, estimated from counts.

T characters   C cells
"""

import numpy as np

CELL_BINS = 16  # by quantiles, and as many of equal width: rare values are apart too


def sort_into_classes(value_T: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the class of each value, int64 [T]: `num_classes` of equal counts, ties together."""
    shares = np.linspace(0, 1, num_classes + 1)[1:-1]
    edges = np.unique(np.quantile(value_T, shares, method="lower"))
    if len(np.unique(value_T)) <= num_classes:
        edges = np.unique(value_T)[:-1]
    return np.searchsorted(edges, value_T, side="left")


def sort_into_bins(x_T: np.ndarray) -> np.ndarray:
    """Return the bin of each activation of a cell, int64 [T]; equal activations share one."""
    shares = np.linspace(0, 1, CELL_BINS + 1)[1:-1]
    edges = [np.quantile(x_T, shares, method="lower"), np.min(x_T) + shares * np.ptp(x_T)]
    return np.searchsorted(np.unique(np.concatenate(edges)), x_T, side="left")


def measure_entropy(class_T: np.ndarray) -> float:
    """Return the entropy of the classes in bits, with the correction of Miller (1955).

    Counts are of few samples where there are many classes: -sum p log p is too small by about
    (K - 1) / 2 T nats with K classes that occur.
    """
    count_K = np.bincount(class_T)
    count_K = count_K[count_K > 0]
    share_K = count_K / len(class_T)
    correction = (len(count_K) - 1) / (2 * len(class_T))
    return float(-(share_K * np.log(share_K)).sum() + correction) / np.log(2)


def measure_information(x_T: np.ndarray, class_T: np.ndarray) -> float:
    """Return I(x; class) = H(x) + H(class) - H(x, class) in bits.

    Args:
      x_T: the activations of a cell, which are sorted into bins.
      class_T: integers from 0.
    """
    bin_T = sort_into_bins(x_T)
    joint_T = bin_T * (int(class_T.max()) + 1) + class_T
    return measure_entropy(bin_T) + measure_entropy(class_T) - measure_entropy(joint_T)


def rank_cells(cells_TC: np.ndarray, class_T: np.ndarray) -> list[tuple[int, float]]:
    """Return (cell, bits) of all cells, the most informative one first."""
    bits_C = [measure_information(x_T, class_T) for x_T in cells_TC.T]
    return sorted(enumerate(bits_C), key=lambda pair: (-pair[1], pair[0]))
