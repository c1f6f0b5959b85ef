"""Control a TPU pod from a laptop through `gcloud`, with the standard library of Python 3.11."""
