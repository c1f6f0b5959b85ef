"""What a device does better than a plain equation: attention kernels, gathers, dropout bits."""
