"""Environment variables that silence the messages of libraries, set before they are imported."""

import glob
import importlib.util
import os


def silence_libraries() -> None:
    """Set variables that silence TensorFlow and libtpu; those that are set stay.

    TensorFlow only reads data. libtpu is installed for `plan` without a TPU, where JAX's search for
    one prints many lines.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    if (
        importlib.util.find_spec("libtpu")
        and not glob.glob("/dev/accel*")
        and not glob.glob("/dev/vfio/[0-9]*")
    ):
        os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
        os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
