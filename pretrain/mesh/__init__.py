"""A run on many devices: the sharding table, the device feed, precision, exchange of gradients."""
