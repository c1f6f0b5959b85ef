"""Visual tokens: k-means is exact and the same for the same patches, and a picture is its tokens."""

import hashlib
import tracemalloc

import numpy as np
import pytest

from data.images.codebook import (
    Codebook,
    Grid,
    compute_means,
    find_nearest,
    fit_centroids,
    load_codebook,
)


def make_clouds(seed=0, count=400, clusters=5, width=6):
    """Return patches around `clusters` middles that are far apart, and the middles."""
    rng = np.random.default_rng(seed)
    middles = np.array(
        [np.roll([30, 210] * (width // 2), i) // (1 + i // 2) for i in range(clusters)]
    )
    noise = rng.integers(-8, 9, (count, width))
    return (middles[np.arange(count) % clusters] + noise).astype(np.uint8), middles


def test_known_clusters_are_found():
    """Each centroid is the rounded mean of its cloud."""
    patches, _ = make_clouds()
    expected = {
        tuple(np.floor(patches[i::5].mean(axis=0) + 0.5).astype(int).tolist()) for i in range(5)
    }
    assert {tuple(one) for one in fit_centroids(patches, 5).tolist()} == expected


def test_the_fit_is_as_good_as_that_of_sklearn():
    cluster = pytest.importorskip("sklearn.cluster", reason="scikit-learn is an extra")
    rng = np.random.default_rng(1)
    patches = rng.integers(0, 256, (1500, 1)) // 64 * 60 + rng.integers(0, 30, (1500, 4))
    patches = patches.astype(np.uint8)
    centroids = fit_centroids(patches, 12)
    own = find_nearest(patches, centroids)[1].sum()
    best = cluster.KMeans(12, n_init=5, random_state=0).fit(patches.astype(float)).inertia_
    assert own < 1.1 * best


def test_the_order_of_patches_does_not_matter_and_the_result_is_pinned():
    patches = (np.arange(4000) ** 2 * 31 % 251).astype(np.uint8).reshape(-1, 8)
    patches[::3] //= 7
    centroids = fit_centroids(patches, 20)
    assert np.array_equal(fit_centroids(patches[::-1], 20), centroids)
    digest = hashlib.sha256(centroids.tobytes()).hexdigest()[:16]
    assert digest == "b185eaa8e138dfee", "stores that are prepared again get other visual tokens"


def test_nearest_centroids_are_those_of_whole_numbers():
    rng = np.random.default_rng(3)
    patches, centroids = (rng.integers(0, 256, (n, 7)).astype(np.uint8) for n in (300, 9))
    distances = ((patches[:, None].astype(int) - centroids.astype(int)) ** 2).sum(axis=2)
    nearest, distance = find_nearest(patches, centroids)
    assert np.array_equal(nearest, distances.argmin(axis=1))
    assert np.array_equal(distance, distances.min(axis=1))


def test_large_patches_take_little_memory():
    patches = np.random.default_rng(0).integers(0, 256, (1500, 64 * 64 * 3), np.uint8)
    tracemalloc.start()
    try:
        nearest, distance = find_nearest(patches, patches[:2])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6  # in doubles they are 147 MB
    assert nearest[:2].tolist() == [0, 1] and distance[:2].tolist() == [0, 0]


def test_an_empty_cluster_takes_the_farthest_patch():
    patches = np.array([[0], [10], [90], [200]], np.uint8)
    nearest, distance = np.array([0, 0, 0, 0]), np.array([0, 100, 8100, 40000])
    means = compute_means(patches, np.array([1, 1, 1, 5]), nearest, distance, 3)
    assert means.tolist() == [[138], [200], [90]]  # (0 + 10 + 90 + 5 * 200) / 8 = 137.5


def test_more_clusters_than_distinct_patches_are_refused():
    patches = np.repeat(np.arange(5, dtype=np.uint8), 20)[:, None]
    assert sorted(fit_centroids(patches, 5).ravel().tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="--clusters 6: .* than the 5 distinct patches"):
        fit_centroids(patches, 6)


def test_a_picture_is_cut_and_joined():
    grid = Grid(size=6, patch=3, channels=3)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3)).astype(np.uint8)
    patches = grid.cut_patches(pixels)
    assert np.array_equal(patches[1, 2], pixels[1, 3:, :3].ravel())
    assert np.array_equal(grid.join_patches(patches[0]), pixels[0])
    codebook = Codebook(grid, patches.reshape(8, -1))
    assert codebook.encode(pixels).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert np.array_equal(codebook.decode(np.arange(4, 8)), pixels[1])


def test_a_codebook_is_saved_and_damage_is_named(tmp_path):
    codebook = Codebook(Grid(4, 2, 1), np.arange(12, dtype=np.uint8).reshape(3, 4))
    codebook.save(tmp_path)
    found = load_codebook(tmp_path)
    assert found.grid == codebook.grid and found.number == codebook.number
    assert np.array_equal(found.centroids_KN, codebook.centroids_KN)
    other = Codebook(codebook.grid, codebook.centroids_KN + np.uint8(1))
    assert other.number != codebook.number
    (tmp_path / "centroids.bin").write_bytes(b"123")
    with pytest.raises(ValueError, match=r"centroids.bin: 3 bytes, codebook.json says 3 centroids"):
        load_codebook(tmp_path)
    (tmp_path / "codebook.json").write_text('{"size": 5, "patch": 2, "channels": 1, "clusters": 3}')
    with pytest.raises(ValueError, match=r"codebook.json: patches of 2 pixels do not fill"):
        load_codebook(tmp_path)
    (tmp_path / "codebook.json").write_text('{"size": 5}')
    with pytest.raises(ValueError, match="expected whole numbers size, patch, channels, clusters"):
        load_codebook(tmp_path)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 1, 1), "pictures of 0 pixels"),
        ((8, 3, 1), "patches of 3 pixels do not fill pictures of 8"),
        ((8, 0, 1), "patches of 0 pixels"),
        ((8, 2, 2), "2 channels"),
        ((1024, 1, 1), "1,048,576 patches a picture"),
    ],
)
def test_sizes_out_of_range_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        Grid(*sizes)
