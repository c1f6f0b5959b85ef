"""Users and groups without a name, such as a container's `--user 1234`.

etils asks for the names of a file's owner and group whenever it looks at a file. Where the system
has none it raises KeyError, although nobody reads them.
"""

import grp
import os
import pwd
from collections.abc import Callable
from typing import TypeVar

Entry = TypeVar("Entry", pwd.struct_passwd, grp.struct_group)
NO_HOME = "/"  # as Docker sets HOME for such a user


def name_unknown_owners() -> None:
    """Let this process name users and groups that the system does not know by their numbers."""
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
