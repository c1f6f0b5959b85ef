"""Local and remote paths: pathlib for local ones, etils.epath for gs://."""

import grp
import os
import pathlib
import pwd
import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

Entry = TypeVar("Entry", pwd.struct_passwd, grp.struct_group)
DATASETS = "hf://datasets/"  # begins the name of a dataset of the Hugging Face Hub
WEB = ("https://", "http://")
URLS = (*WEB, "s3://")  # from which files of a corpus are read, beside gs://
NO_HOME = "/"  # as Docker sets HOME for such a user
# The name of a TensorFlow dataset: tfds:NAME[/CONFIG][:VERSION][:SPLIT].
TFDS_NAME = re.compile(r"tfds:(?P<name>[\w./-]+(?::\d+\.\d+\.\d+)?)(?::(?P<split>.+))?")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL, such as gs://..., which epath reads."""
    return "://" in str(path)


def strip_query(path: str) -> str:
    """Return a path without the query or fragment of a URL of the web, as in a.parquet?key=1."""
    is_web = path.startswith(WEB)
    return re.split("[?#]", path, maxsplit=1)[0] if is_web else path


def check_utf8_path(path: str | os.PathLike[str]) -> None:
    """Raise ValueError for a path that is not UTF-8: libraries in C++ and Rust open no other."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raw = os.fsencode(path)
    else:
        return
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise ValueError(
            f"{path}: the bytes of this path, {raw!r}, are not UTF-8; name or rename a folder in "
            "UTF-8"
        ) from None
    raise ValueError(
        f"{path}: this path is {raw.decode()!r} in UTF-8, and Python reads the names of files as "
        f"{sys.getfilesystemencoding()} here; set PYTHONUTF8=1, or a locale with UTF-8, such as "
        "LC_ALL=C.UTF-8"
    )


def check_local(output: str | os.PathLike[str], what: str, option: str = "--output") -> None:
    """Raise ValueError if an output that is written on this machine has a URL.

    pathlib would make a folder `gs:` of it.
    """
    if is_remote(output):
        raise ValueError(
            f"{option} {output}: must be on this machine; copy {what} to the bucket later"
        )


def check_distinct(sources: Sequence[str]) -> None:
    """Raise ValueError if a source is given twice, whatever names and links lead to it."""
    if len(set(map(os.path.realpath, sources))) < len(sources):
        raise ValueError(f"a source is given twice: {' '.join(sources)}")


def check_scheme(url: str) -> None:
    """Raise ValueError for a URL of another scheme than gs://, with what to do instead."""
    scheme = url.partition("://")[0].lower()
    if scheme == "gs":
        return
    if scheme in ("http", "https"):
        remedy = f"download it (curl -LO {url}) and name the file"
    elif scheme == "s3":
        remedy = (
            f"copy it (aws s3 cp --recursive {url} FOLDER) or mount the bucket, and name the folder"
        )
    elif scheme == "hf":
        remedy = f"`import {url} --workdir W` makes a workdir; `prepare --vocabulary` reads it"
    else:
        remedy = "copy it to this machine"
    raise ValueError(
        f"{url}: {scheme}:// is not read; expected a path on this machine or gs://BUCKET/PATH: "
        f"{remedy}"
    )


def as_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Return a pathlib.Path for a local path, an epath.Path (with the same methods) for a URL.

    Raises ValueError for a URL that is not gs://.
    """
    if is_remote(path):
        check_scheme(str(path))
        from etils import epath  # slow to import, and only URLs need it

        return cast(pathlib.Path, epath.Path(path))
    return pathlib.Path(path)


def name_unknown_owners() -> None:
    """Let this process name users and groups that the system does not know by their numbers.

    Such as a container's `--user 1234`. etils asks for the names of a file's owner and group
    whenever it looks at a file, and the system raises KeyError where it has none.
    """
    if pwd.getpwuid.__module__ != __name__:
        pwd.getpwuid = _add_fallback(pwd.getpwuid, _make_user)
        grp.getgrgid = _add_fallback(grp.getgrgid, _make_group)


def _add_fallback(look_up: Callable[[int], Entry], make: Callable[[int], Entry]) -> Callable:
    def find_entry(number: int, /) -> Entry:
        try:
            return look_up(number)
        except KeyError:
            return make(number)

    return find_entry


def _make_user(number: int) -> pwd.struct_passwd:
    home = os.environ.get("HOME") or NO_HOME
    return pwd.struct_passwd((str(number), "x", number, number, "", home, "/bin/sh"))


def _make_group(number: int) -> grp.struct_group:
    return grp.struct_group((str(number), "x", number, []))


name_unknown_owners()  # Whatever reads paths with etils imports this module.
