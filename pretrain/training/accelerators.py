"""Published figures of TPU and GPU models: the one table for MFU and `plan`.

Sources, read 2026-11-21: Google Cloud's page of each TPU gives the peak rate, HBM, interconnect
bandwidth per chip in both directions and number of ports; v5e has two 100 Gbit/s network cards for
8 chips. The page of v4 gives no rate of a link. It is computed from the bisection bandwidth of a
pod, 24 TB/s, over the 512 links that cut a 16 x 16 x 16 torus in two. The 45 TFLOP/s of v2 come
from a secondary source. The pages of v2 to v5p give matrix units of 128 x 128, v6e's page of
256 x 256. A vector unit of v4 has 16 ALUs in each of 128 lanes (Jouppi et al. 2023, section 2), one
of v5e and v5p 4 in each of 8 x 128 (jax-ml.github.io/scaling-book, "TPUs"), for each core. Its
clock follows from the peak of the matrix units, four for each core: 1.05, 1.50 and 1.75 GHz. The
figures of v6e's page give no clock that is possible. NVIDIA's figures are from the tables of the
SXM cards, without sparsity. None: not published there.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """One device as JAX counts devices: a core of TPU v2 and v3, a chip from v4 on.

    Attributes:
      flops: dense bfloat16 FLOP/s.
      hbm: memory in bytes.
      hbm_rate: memory bandwidth in bytes/s.
      link: bandwidth of one interconnect link in one direction, in bytes/s.
      torus: number of dimensions of the interconnect; each has two links.
      network: bandwidth to other slices, in bytes/s per device.
      cores: number of devices per chip.
      matrix_unit: side of a matrix unit; smaller matrices leave a part of it empty.
      vector_rate: elementwise operations on 32-bit numbers per second.
    """

    flops: float
    hbm: float | None = None
    hbm_rate: float | None = None
    link: float | None = None
    torus: int = 0
    network: float | None = None
    cores: int = 1
    matrix_unit: int = 1
    vector_rate: float | None = None


GB, GIB, GBIT = 1e9, 2**30, 1e9 / 8

# Keys are JAX's `device_kind`.
CHIPS = {
    "TPU v2": Chip(22.5e12, cores=2, matrix_unit=128),
    "TPU v3": Chip(61.5e12, hbm=16 * GIB, hbm_rate=450 * GB, cores=2, matrix_unit=128),
    "TPU v4": Chip(
        275e12,
        hbm=32 * GIB,
        hbm_rate=1200 * GB,
        link=47 * GB,
        torus=3,
        matrix_unit=128,
        vector_rate=2 * 128 * 16 * 1.05e9,
    ),
    "TPU v5 lite": Chip(
        197e12,
        hbm=16 * GIB,
        hbm_rate=819 * GB,
        link=50 * GB,
        torus=2,
        network=25 * GBIT,
        matrix_unit=128,
        vector_rate=8 * 128 * 4 * 1.5e9,
    ),
    "TPU v5": Chip(
        459e12,
        hbm=95 * GIB,
        hbm_rate=2765 * GB,
        link=100 * GB,
        torus=3,
        network=50 * GBIT,
        matrix_unit=128,
        vector_rate=2 * 8 * 128 * 4 * 1.75e9,
    ),
    "TPU v6 lite": Chip(
        918e12, hbm=32 * GIB, hbm_rate=1638 * GB, link=100 * GB, torus=2, matrix_unit=256
    ),
    "NVIDIA A100-SXM4-40GB": Chip(312e12),
    "NVIDIA A100-SXM4-80GB": Chip(312e12),
    "NVIDIA H100 80GB HBM3": Chip(989e12),
    "NVIDIA H200": Chip(989e12, hbm_rate=4800 * GB),
}
