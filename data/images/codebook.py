"""Visual tokens: the number of the centroid that is nearest to each patch of a picture.

The centroids come from k-means (Lloyd 1982), which begins with k-means++ (Arthur and
Vassilvitskii 2007). Pixels and centroids are whole numbers, and all sums are exact, so that equal
pictures have equal centroids and equal tokens on any machine. VideoBERT (Sun et al. 2019, section
4.2) clusters features of video clips in a hierarchy of 12^4 clusters; here there is one level.

B pictures   H, W size   C channels   T patches of a picture   N = patch * patch * C numbers
M patches   U distinct patches   K clusters
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib

import numpy as np
from etils import epath

from data.corpus.paths import as_path
from data.corpus.untrusted import MAX_VOCABULARY_BYTES, read_bounded, read_bounded_json
from data.rows import hashing

FOLDER, SETTINGS_FILE, CENTROIDS_FILE = "codebook", "codebook.json", "centroids.bin"
ITERATIONS = 30
MAX_CLUSTERS, MAX_SIZE, MAX_PATCHES = 4096, 1024, 4096
PART = 1 << 22  # numbers of patches, or distances, that are in memory at a time


@dataclasses.dataclass(frozen=True)
class Grid:
    """How a picture is cut: `size` x `size` pixels of `channels` values, in square patches.

    Raises:
      ValueError: a number is out of its range, or patches do not fill a picture.
    """

    size: int
    patch: int
    channels: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_SIZE:
            raise ValueError(f"pictures of {self.size} pixels a side: from 1 to {MAX_SIZE}")
        if self.patch < 1 or self.size % self.patch:
            raise ValueError(
                f"patches of {self.patch} pixels do not fill pictures of {self.size} pixels a side"
            )
        if self.num_patches > MAX_PATCHES:
            raise ValueError(
                f"{self.num_patches:,} patches a picture: at most {MAX_PATCHES:,}, so take larger "
                "patches"
            )
        if self.channels not in (1, 3):
            raise ValueError(f"{self.channels} channels: 1 of brightness, or 3 of colors")

    @property
    def num_patches(self) -> int:
        """T, the number of patches of a picture."""
        return (self.size // self.patch) ** 2

    def cut_patches(self, pixels_BHWC: np.ndarray) -> np.ndarray:
        """Return the patches of pictures from left to right and top to bottom, [B, T, N]."""
        side, patch = self.size // self.patch, self.patch
        shape = len(pixels_BHWC), side, patch, side, patch, self.channels
        patches = pixels_BHWC.reshape(shape).swapaxes(2, 3)
        return patches.reshape(len(pixels_BHWC), self.num_patches, -1)

    def join_patches(self, patches_TN: np.ndarray) -> np.ndarray:
        """Return the picture of its patches, [H, W, C]."""
        side, patch = self.size // self.patch, self.patch
        patches = patches_TN.reshape(side, side, patch, patch, self.channels).swapaxes(1, 2)
        return patches.reshape(self.size, self.size, self.channels)


@dataclasses.dataclass(frozen=True, eq=False)
class Codebook:
    """The centroids of patches.

    grid: how a picture is cut.
    centroids_KN: uint8.
    """

    grid: Grid
    centroids_KN: np.ndarray

    def encode(self, pixels_BHWC: np.ndarray) -> np.ndarray:
        """Return the visual tokens of pictures, int64 [B, T]: numbers of the nearest centroids."""
        patches_BTN = self.grid.cut_patches(pixels_BHWC)
        found_M, _ = find_nearest(patches_BTN.reshape(-1, patches_BTN.shape[-1]), self.centroids_KN)
        return found_M.reshape(patches_BTN.shape[:2])

    def decode(self, numbers_T: np.ndarray) -> np.ndarray:
        """Return the picture of visual tokens, uint8 [H, W, C]."""
        return self.grid.join_patches(self.centroids_KN[numbers_T])

    @functools.cached_property
    def number(self) -> int:
        """Hash of the grid and the centroids, below 10^15."""
        digest = hashlib.sha256(json.dumps(dataclasses.asdict(self.grid)).encode())
        digest.update(self.centroids_KN.tobytes())
        return int.from_bytes(digest.digest()[:8], "little") % 10**15

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the grid and the centroids to a folder, made if absent."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        settings = dataclasses.asdict(self.grid) | {"clusters": len(self.centroids_KN)}
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n")
        (folder / CENTROIDS_FILE).write_bytes(self.centroids_KN.tobytes())


def load_codebook(folder: epath.PathLike) -> Codebook:
    """Return the codebook in a folder that `Codebook.save` wrote.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file is damaged; the message names it.
    """
    path = as_path(folder) / SETTINGS_FILE
    settings = read_bounded_json(path)
    names = (*(field.name for field in dataclasses.fields(Grid)), "clusters")
    if not isinstance(settings, dict) or any(type(settings.get(name)) is not int for name in names):
        raise ValueError(f"{path}: expected whole numbers {', '.join(names)}")
    try:
        grid = Grid(*(settings[name] for name in names[:-1]))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    content = read_bounded(as_path(folder) / CENTROIDS_FILE, MAX_VOCABULARY_BYTES)
    shape = settings["clusters"], grid.patch**2 * grid.channels
    if len(content) != shape[0] * shape[1]:
        raise ValueError(
            f"{as_path(folder) / CENTROIDS_FILE}: {len(content):,} bytes, {SETTINGS_FILE} says "
            f"{shape[0]:,} centroids of {shape[1]:,}"
        )
    return Codebook(grid, np.frombuffer(content, np.uint8).reshape(shape))


# ---- k-means -------------------------------------------------------------------


def fit_centroids(patches_MN: np.ndarray, clusters: int, seed: int = 0) -> np.ndarray:
    """Return centroids of patches by k-means, uint8 [K, N]; each coordinate is a rounded mean.

    Args:
      patches_MN: uint8, in any order.

    Raises:
      ValueError: there are fewer distinct patches than clusters.
    """
    patches_UN, count_U = np.unique(patches_MN, axis=0, return_counts=True)
    if not 1 <= clusters <= min(MAX_CLUSTERS, len(patches_UN)):
        raise ValueError(
            f"--clusters {clusters:,}: at least 1 and at most {MAX_CLUSTERS:,}, and no more than "
            f"the {len(patches_UN):,} distinct patches of the training pictures"
        )
    centroids_KN = draw_first_centroids(patches_UN, count_U, clusters, seed)
    for _ in range(ITERATIONS):
        nearest_U, distance_U = find_nearest(patches_UN, centroids_KN)
        updated_KN = compute_means(patches_UN, count_U, nearest_U, distance_U, clusters)
        if np.array_equal(updated_KN, centroids_KN):
            break
        centroids_KN = updated_KN
    return centroids_KN


def draw_first_centroids(
    patches_UN: np.ndarray, count_U: np.ndarray, clusters: int, seed: int
) -> np.ndarray:
    """Return distinct patches, each drawn in proportion to its squared distance from the others.

    count_U: how often each patch occurs, which multiplies the distance.
    """
    bits_K = hashing.draw_uint64(hashing.derive_keys(seed), clusters)[0]
    weight_U, chosen = count_U.astype(np.int64), []
    distance_U = np.full(len(patches_UN), np.iinfo(np.int64).max)
    for bits in bits_K:
        edges_U = np.cumsum(weight_U)
        drawn = int(bits) % int(edges_U[-1])
        chosen.append(int(np.searchsorted(edges_U, drawn, side="right")))
        _, new_U = find_nearest(patches_UN, patches_UN[chosen[-1:]])
        distance_U = np.minimum(distance_U, new_U)
        weight_U = distance_U * count_U
    return patches_UN[chosen]


def find_nearest(patches_MN: np.ndarray, centroids_KN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the nearest centroid and its squared distance, int64 [M] each.

    Of several that are equally near, the first counts. Doubles hold the sums exactly.
    """
    centroids = centroids_KN.astype(np.float64)
    squares_K = (centroids**2).sum(axis=1)
    nearest_M, distance_M = np.empty((2, len(patches_MN)), np.int64)
    number = max(PART // max(centroids.shape), 1)
    for start in range(0, len(patches_MN), number):
        patches = patches_MN[start : start + number].astype(np.float64)
        scores = squares_K - 2 * (patches @ centroids.T)
        nearest = scores.argmin(axis=1)
        own = (patches**2).sum(axis=1)
        nearest_M[start : start + number] = nearest
        distance_M[start : start + number] = own + scores[np.arange(len(own)), nearest]
    return nearest_M, distance_M


def compute_means(
    patches_UN: np.ndarray,
    count_U: np.ndarray,
    nearest_U: np.ndarray,
    distance_U: np.ndarray,
    clusters: int,
) -> np.ndarray:
    """Return the rounded mean of the patches of each cluster, uint8 [K, N].

    An empty cluster takes one of the patches that are farthest from their centroids.
    """
    order_U = np.argsort(nearest_U, kind="stable")
    filled, starts = np.unique(nearest_U[order_U], return_index=True)
    weighted_UN = patches_UN[order_U].astype(np.int64) * count_U[order_U, None]
    sums, counts = np.add.reduceat(weighted_UN, starts), np.add.reduceat(count_U[order_U], starts)
    means_KN = np.empty((clusters, patches_UN.shape[1]), np.uint8)
    means_KN[filled] = (2 * sums + counts[:, None]) // (2 * counts[:, None])
    empty = np.setdiff1d(np.arange(clusters), filled)
    means_KN[empty] = patches_UN[np.argsort(-distance_U, kind="stable")[: len(empty)]]
    return means_KN
