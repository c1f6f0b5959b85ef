"""A TPU pod steered from a laptop through `gcloud`; Python 3.11 and nothing else."""
