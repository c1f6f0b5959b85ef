"""Published figures of TPU and GPU models: the one table behind MFU and `plan`.

Sources, read 2026-11-21: Google Cloud's page of each TPU gives the peak rate, HBM, interconnect
bandwidth per chip in both directions and number of ports; v5e has two 100 Gbit/s network cards for
8 chips. The page of v4 gives no rate of a link. It is computed from the bisection bandwidth of a
pod, 24 TB/s, over the 512 links that cut a 16 x 16 x 16 torus in two. The 45 TFLOP/s of v2 come
from a secondary source. NVIDIA's figures are from the tables of the SXM cards, without sparsity.
None: not published there.
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
    """

    flops: float
    hbm: float | None = None
    hbm_rate: float | None = None
    link: float | None = None
    torus: int = 0
    network: float | None = None
    cores: int = 1


GB, GIB, GBIT = 1e9, 2**30, 1e9 / 8

# Keys are JAX's `device_kind`.
CHIPS = {
    "TPU v2": Chip(22.5e12, cores=2),
    "TPU v3": Chip(61.5e12, hbm=16 * GIB, hbm_rate=450 * GB, cores=2),
    "TPU v4": Chip(275e12, hbm=32 * GIB, hbm_rate=1200 * GB, link=47 * GB, torus=3),
    "TPU v5 lite": Chip(
        197e12, hbm=16 * GIB, hbm_rate=819 * GB, link=50 * GB, torus=2, network=25 * GBIT
    ),
    "TPU v5": Chip(
        459e12, hbm=95 * GIB, hbm_rate=2765 * GB, link=100 * GB, torus=3, network=50 * GBIT
    ),
    "TPU v6 lite": Chip(918e12, hbm=32 * GIB, hbm_rate=1638 * GB, link=100 * GB, torus=2),
    "NVIDIA A100-SXM4-40GB": Chip(312e12),
    "NVIDIA A100-SXM4-80GB": Chip(312e12),
    "NVIDIA H100 80GB HBM3": Chip(989e12),
    "NVIDIA H200": Chip(989e12, hbm_rate=4800 * GB),
}
