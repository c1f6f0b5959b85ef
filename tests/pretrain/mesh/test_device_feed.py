"""Each process builds its own devices' rows, and the mesh sees the whole batch in order."""

import jax
import numpy as np
import pytest

from pretrain.config import Mesh
from pretrain.mesh.device_feed import (
    find_local_rows,
    make_global_arrays,
    prefetch_to_devices,
)
from pretrain.mesh.sharding import make_batch_sharding, make_mesh


@pytest.mark.parametrize("sizes", [(8, 1, 1), (2, 2, 2), (1, 8, 1), (1, 1, 8), (4, 2, 1)], ids=str)
def test_the_mesh_sees_the_batch_in_order(sizes):
    mesh = make_mesh(Mesh(*sizes))
    rows = {"a": np.arange(48).reshape(16, 3), "b": np.arange(16, dtype=np.float32)}
    assert find_local_rows(mesh, 16) == [(0, 16)]
    batch = make_global_arrays([rows], [(0, 16)], 16, mesh)
    for key, value in rows.items():
        np.testing.assert_array_equal(jax.device_get(batch[key]), value)
        assert batch[key].sharding.is_equivalent_to(make_batch_sharding(mesh), value.ndim)


class Half:
    """Make a mesh with only some devices of this process, as on a pod."""

    def __init__(self, sharding, devices):
        self.sharding, self.devices = sharding, devices

    def addressable_devices_indices_map(self, shape):
        return {
            d: index
            for d, index in self.sharding.devices_indices_map(shape).items()
            if d in self.devices
        }


@pytest.mark.parametrize(
    ("sizes", "held", "intervals"),
    [
        ((8, 1, 1), slice(0, 4), [(0, 8)]),
        ((1, 8, 1), slice(4, 8), [(8, 16)]),
        (
            (2, 4, 1),
            slice(0, 4),
            [(0, 2), (4, 6), (8, 10), (12, 14)],
        ),  # fsdp is the batch's major axis
        ((2, 2, 2), slice(0, 4), [(0, 4), (8, 12)]),
    ],
    ids=str,
)
def test_a_process_builds_only_the_rows_of_its_devices(monkeypatch, sizes, held, intervals):
    mesh = make_mesh(Mesh(*sizes), jax.devices())
    devices = set(mesh.devices.reshape(-1)[held])
    monkeypatch.setattr(
        "pretrain.mesh.device_feed.make_batch_sharding",
        lambda mesh: Half(make_batch_sharding(mesh), devices),
    )
    assert find_local_rows(mesh, 16) == intervals


class Numbered:
    """Return a stream whose rows are numbered: step 3 of 16 rows has 48 ... 63."""

    class data:
        batch_size = 16

    @property
    def streams(self):
        return {"": self}

    def iterate_batches(self, start, lo, hi):
        step = start
        while True:
            yield {"row": np.arange(16 * step + lo, 16 * step + hi)}
            step += 1


@pytest.mark.parametrize("ahead", [0, 2, 9])
def test_every_step_is_fed_once_and_in_order(ahead):
    seen = [
        (step, jax.device_get(batch["row"]).tolist())
        for step, batch in prefetch_to_devices(Numbered(), make_mesh(Mesh(2, 4, 1)), 3, 8, ahead)
    ]
    assert seen == [(step, list(range(16 * step, 16 * step + 16))) for step in range(3, 8)]


def test_a_feed_asks_for_its_own_rows(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "pretrain.mesh.device_feed.find_local_rows", lambda mesh, size: [(4, 8), (12, 16)]
    )
    monkeypatch.setattr(
        "pretrain.mesh.device_feed.make_global_arrays",
        lambda parts, intervals, size, mesh: [part["row"].tolist() for part in parts],
    )
    monkeypatch.setattr(
        Numbered,
        "iterate_batches",
        lambda self, start, lo, hi: (
            asked.append((start, lo, hi)) or iter([{"row": np.arange(lo, hi)}] * 9)
        ),
    )
    assert list(prefetch_to_devices(Numbered(), None, 5, 6)) == [
        (5, [[4, 5, 6, 7], [12, 13, 14, 15]])
    ]
    assert asked == [(5, 4, 8), (5, 12, 16)]
