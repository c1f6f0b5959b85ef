"""Import what a run needs, then fork a process for each request of tests/forks.py, until the client
ends.
"""

import gc
import importlib
import json
import os
import selectors
import socket
import sys
import time
import warnings

from tests import conftest, forks

NEEDED = (
    *("jax", "flax.linen", "optax", "orbax.checkpoint", "sentencepiece"),
    *("pretrain.cli.train", "pretrain.cli.evaluate", "pretrain.cli.local"),
    *("pretrain.training.loop", "data.pipeline", "models.bert", "models.t5"),
    *("tensorboard.summary.writer.event_file_writer", "fsspec"),
)


def import_all():
    """Import the libraries, with the setting of pretrain/__main__.py."""
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    for name in NEEDED:
        importlib.import_module(name)
    import tensorflow  # noqa: F401

    conftest.save_small_arrays_whole()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # tracing makes many long-lived objects


def serve_requests(place: str):
    """Answer requests one after the other until standard input, a socket, is closed."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(place)
    listener.listen()
    owner = socket.socket(fileno=0)
    owner.sendall(b".")
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(owner, selectors.EVENT_READ)
        while not any(key.fileobj is owner for key, _ in selector.select()):
            client, _ = listener.accept()
            size, streams, *_ = socket.recv_fds(client, 8, 3)
            text = client.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL)
            client.sendall(fork_twice(json.loads(text), streams).to_bytes(8, "little"))
            client.close()
            for stream in streams:
                os.close(stream)
    os._exit(0)


def fork_twice(request, streams) -> int:
    """Fork the requested process and return its pid once it is the client's child.

    The process between ends, and its child falls to the nearest ancestor that asks for orphans: the
    client.
    """
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        between = os.getpid()
        pid = os.fork()
        if pid:
            os.write(writer, pid.to_bytes(8, "little"))
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.001)
        forks.become_program(request, streams)
    os.waitpid(between, 0)
    pid = int.from_bytes(os.read(reader, 8), "little")
    os.close(reader)
    os.close(writer)
    return pid


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # forked processes: no imported thread holds a lock
    import_all()
    serve_requests(sys.argv[1])
