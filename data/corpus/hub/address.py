"""Names of repositories on the Hugging Face Hub, and their addresses hf://USER/NAME[@REVISION].

The names become parts of URLs and of paths in a cache, so they are checked before anything is sent.
"""

import dataclasses
import re

SCHEME = "hf://"
MAIN = "main"  # the branch that every repository has
KINDS = ("datasets", "spaces", "kernels", "buckets")  # of what is not a model
MAX_NAME, MAX_REVISION = 96, 200  # characters
NAME = re.compile(r"\w(?:[\w.-]*\w)?", re.ASCII)
REVISION = re.compile(r"\w[\w./+-]*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclasses.dataclass(frozen=True)
class Address:
    """A revision of a repository.

    Attributes:
      repository: its id, USER/NAME; a few old ones have no USER.
      revision: a branch, a tag or a commit.
    """

    repository: str
    revision: str = MAIN

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}@{self.revision}"


def is_address(place: object) -> bool:
    """Return whether a place, as a user gives it, is an address of the Hub."""
    return str(place).startswith(SCHEME)


def parse_address(text: str) -> Address:
    """Return the address in a text. Raises ValueError, which names what is wrong."""
    if not is_address(text):
        raise ValueError(f"{text}: expected {SCHEME}USER/NAME or {SCHEME}USER/NAME@REVISION")
    repository, mark, revision = text.removeprefix(SCHEME).partition("@")
    check_repository(repository, text)
    return Address(repository, check_revision(revision, text) if mark else MAIN)


def check_repository(repository: str, place: str = "", owned: bool = False) -> str:
    """Return the id of a repository of a model, which must be USER/NAME.

    Args:
      place: what the error begins with; by default the id.
      owned: whether a name without USER is refused.

    Raises:
      ValueError: the id is malformed, or belongs to a data set or another kind.
    """
    place, parts = place or repository, repository.split("/")
    if parts[0] in KINDS:
        raise ValueError(f"{place}: names one of the {parts[0]} of the Hub; a model is USER/NAME")
    if len(parts) > 2:
        raise ValueError(
            f"{place}: {repository!r} has {len(parts)} parts; a repository is USER/NAME, and is "
            "read and written as a whole"
        )
    if owned and len(parts) < 2:
        raise ValueError(f"{place}: expected USER/NAME, with your name or your organisation's")
    if len(repository) > MAX_NAME:
        raise ValueError(f"{place}: has {len(repository)} characters; at most {MAX_NAME} are valid")
    malformed = any(not NAME.fullmatch(part) for part in parts)
    if malformed or "--" in repository or ".." in repository or repository.endswith(".git"):
        raise ValueError(
            f"{place}: {repository!r} is no name of a repository: USER/NAME has ASCII letters, "
            "digits, '-', '_' and '.', begins and ends with a letter or digit, and has no '--', "
            "'..' or final '.git'"
        )
    return repository


def check_revision(revision: str, place: str = "") -> str:
    """Return the name of a branch, tag or commit. Raises ValueError for one that git has not."""
    malformed = not REVISION.fullmatch(revision) or len(revision) > MAX_REVISION
    parts = revision.split("/")
    if malformed or any(not part or part.startswith(".") for part in parts) or ".." in revision:
        raise ValueError(
            f"{place or revision}: {revision[:MAX_REVISION]!r} is no revision: expected a branch, "
            "a tag or a commit, of ASCII letters, digits, '.', '_', '-', '+' and '/'"
        )
    if revision.endswith((".", ".lock")):
        raise ValueError(f"{place or revision}: no revision ends with {revision[-5:]!r}")
    return revision
