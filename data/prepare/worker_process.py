"""The initialization of worker processes."""

import ctypes
import multiprocessing
import os
import signal
import threading

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # constants of malloc.h


def init_worker() -> None:
    """Initialize a worker process: ignore Ctrl-C, use one thread, exit with the main process.

    Without the last, the workers of a killed `prepare` would wait for jobs forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a worker process calls this"
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    # By default glibc returns memory to the system after each batch, which costs 5% of the time.
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_TRIM_THRESHOLD, 1 << 28)
        mallopt(M_MMAP_THRESHOLD, 1 << 25)
