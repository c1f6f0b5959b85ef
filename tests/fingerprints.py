"""The fingerprints of a checkpoint, by which two runs are compared."""

from pretrain.workdir.checkpoints import Checkpoints


def read_fingerprints(workdir, step):
    """Return those of the parameters and of the optimizer."""
    with Checkpoints(workdir, read_only=True) as checkpoints:
        record = checkpoints.load_record(step)
    return record["params"], record["optimizer"]
