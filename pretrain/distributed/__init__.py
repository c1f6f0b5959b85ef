"""One program on many devices and hosts: sharding, device feed, attention kernels, processes."""
