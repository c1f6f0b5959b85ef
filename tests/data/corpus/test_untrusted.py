"""A folder with a pipe or a device in the place of a file is refused before anybody opens it."""

import os
import socket

import pytest

from data.corpus.untrusted import check_special_files


def test_folders_files_and_links_pass(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("x")
    (tmp_path / "link").symlink_to("a/file")
    (tmp_path / "folder").symlink_to("a")
    (tmp_path / "gone").symlink_to("nothing")
    check_special_files(tmp_path)
    check_special_files(tmp_path / "nothing")
    check_special_files("gs://bucket/folder")


def test_a_pipe_a_socket_and_a_link_to_a_device_are_named(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    os.mkfifo(inner / "pipe")
    with pytest.raises(ValueError, match=f"^{inner}/pipe: is a named pipe; expected a regular"):
        check_special_files(tmp_path)
    (inner / "pipe").unlink()
    (inner / "device").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=f"^{inner}/device: is a device"):
        check_special_files(tmp_path)
    (inner / "device").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(inner, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/s")  # a path of a socket has at most 107 bytes
        os.close(here)
        with pytest.raises(ValueError, match=f"^{inner}/s: is a socket"):
            check_special_files(tmp_path)
