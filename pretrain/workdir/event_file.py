"""Write TensorBoard's event files without TensorFlow.

TensorBoard's own writer imports TensorFlow, where it is installed, only to open a file: 5 s at the
start of a run. A record is its length and its bytes, each followed by a masked checksum:
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import os
import pathlib
import socket
import struct
import time
from typing import Any

import google_crc32c

from data.corpus.paths import is_remote
from data.store.atomic import name_in_disk_errors

PREFIX = "events.out.tfevents."


def open_events(folder: str) -> Any:
    """Open a new event file in a folder, which may be in a bucket.

    Returns:
      Its methods are add_event(event), flush() and close().
    """
    if is_remote(folder):  # TensorFlow writes there, or fsspec without TensorFlow
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        return EventFileWriter(folder)
    return LocalEvents(folder)


class LocalEvents:
    """An event file on this machine, which TensorBoard can read after each event."""

    def __init__(self, folder: str) -> None:
        """Make the folder and a file, whose first event is the version of its form."""
        from tensorboard.compat.proto import event_pb2

        self.path = pathlib.Path(folder) / make_last_name(folder)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.path, "xb")  # noqa: SIM115 - open until `close`
        event: Any = event_pb2  # its classes are made at run time, unseen by type checkers
        self.add_event(event.Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add_event(self, event: Any) -> None:
        """Append an event, a protocol buffer."""
        with name_in_disk_errors(self.path):
            self.file.write(frame_record(event.SerializeToString()))
            self.file.flush()

    def flush(self) -> None:
        """Do nothing: each event is flushed as it is added."""

    def close(self) -> None:
        """Close the file."""
        with name_in_disk_errors(self.path):
            self.file.close()


def make_last_name(folder: str) -> str:
    """Return a name for an event file that sorts after all event files in a folder.

    TensorBoard reads the files in the order of their names, which begin with a second. Two starts
    may share a second, and a run may move to a host whose clock is late, so the second is at least
    one more than in any other name. TensorBoard takes times from the events, not from the name.
    """
    names = (path.name for path in pathlib.Path(folder).glob(f"{PREFIX}*"))
    seconds = [name.removeprefix(PREFIX).split(".")[0] for name in names]
    newest = max((int(second) for second in seconds if second.isdecimal()), default=-1)
    second = max(int(time.time()), newest + 1)
    return f"{PREFIX}{second:010d}.{socket.gethostname()}.{os.getpid()}.0"


def frame_record(data: bytes) -> bytes:
    """Return a record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + pack_checksum(length) + data + pack_checksum(data)


def pack_checksum(data: bytes) -> bytes:
    """Return the crc32c of some bytes, rotated and shifted as TFRecord has it, little-endian."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
