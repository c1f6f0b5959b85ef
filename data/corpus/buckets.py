"""Check a URL before it is used: its scheme, the network, the rights and the bucket.

epath reads gs:// through TensorFlow, which retries for minutes without a network, and whose errors
are neither OSError nor ValueError.
"""

import os
import pathlib
import threading
from typing import Any

from data.corpus.paths import as_path, check_scheme, is_remote
from data.members import call_later, has_module
from data.tensorflow_import import REMEDY

find_unreachable = call_later("data.corpus.network:find_unreachable")

HOSTS = ("storage.googleapis.com", "www.googleapis.com")
FIRST_SECONDS, TIMEOUT = 1.0, 60.0  # until the network is tried, and until the check is given up
RIGHTS = (
    "Log in (gcloud auth application-default login), or set GOOGLE_APPLICATION_CREDENTIALS to the "
    "file of a key; the account needs the role Storage Object Viewer, for a workdir Storage Object "
    "User. On a Google Cloud machine set NO_GCE_CHECK=false"
)
NETWORK = "Check the network, or copy the files to this machine and name their folder"
# Texts and names of errors, in the order in which they are looked for, and the remedies.
REMEDIES = (
    (("PermissionDenied", "PERMISSION_DENIED", "HTTP response code 403", "code 401"), RIGHTS),
    (("Unauthenticated", "UNAUTHENTICATED"), RIGHTS),
    (("libcurl", "Unavailable", "UNAVAILABLE", "DeadlineExceeded", "resolve host"), NETWORK),
)
_checked: set[str] = set()


class BucketError(OSError):
    """A bucket cannot be used."""


class MissingBucketError(BucketError):
    """A bucket does not exist."""


def check_bucket(path: str | os.PathLike[str]) -> None:
    """Raise an error if a path is a URL that cannot be used now; a local path is not checked.

    A URL is checked once per process. A file or folder may be missing in its bucket.

    Raises:
      ValueError: the scheme is not gs://.
      BucketError: the bucket does not exist, cannot be reached, or refuses the access; or nothing
        that reads buckets is installed.
    """
    url = str(path)
    if not is_remote(url) or url in _checked:
        return
    check_scheme(url)
    if not has_module("tensorflow") and not has_module("gcsfs"):
        raise BucketError(
            f"{url}: buckets are read through TensorFlow or gcsfs, and neither is installed: "
            f"{REMEDY}, or pip install gcsfs"
        )
    bucket = "/".join(url.split("/")[:3])
    outcome: dict[str, Any] = {}
    thread = threading.Thread(target=_probe, args=(url, bucket, outcome), daemon=True)
    thread.start()
    thread.join(FIRST_SECONDS)
    if thread.is_alive():
        if reason := find_unreachable(HOSTS):
            raise BucketError(f"{url}: there is no network ({reason}). {NETWORK}")
        thread.join(TIMEOUT)
    if not outcome:
        raise BucketError(f"{url}: no answer within {TIMEOUT:g} s. {NETWORK}")
    if error := outcome.get("error"):
        raise BucketError(f"{url}: {explain_error(error)}") from error
    if not outcome["exists"]:
        raise MissingBucketError(
            f"{url}: there is no bucket {bucket}; check the name, or create it "
            f"(gcloud storage buckets create {bucket})"
        )
    _checked.add(url)


def is_bucket_error(error: BaseException) -> bool:
    """Return whether an error is TensorFlow's, which reads the buckets."""
    return any(
        kind.__name__ == "OpError" and kind.__module__.startswith("tensorflow")
        for kind in type(error).__mro__
    )


def explain_error(error: BaseException) -> str:
    """Return the cause of an error of a bucket, and the remedy if one is known, on one line."""
    text = " ".join(str(error).split())
    return explain_reason(f"{type(error).__name__}: {text[:400]}")


def explain_reason(cause: str) -> str:
    """Return the text of an error with its remedy if one is known."""
    for signs, remedy in REMEDIES:
        if any(sign in cause for sign in signs):
            return f"{cause}. {remedy}"
    return cause


def _probe(url: str, bucket: str, outcome: dict[str, Any]) -> None:
    """Record whether a file, folder or at least its bucket exists, or the error."""
    try:
        folder: pathlib.Path = as_path(url.split("*")[0].split("?")[0])
        outcome["exists"] = folder.exists() or _may_exist(bucket)
    except Exception as error:  # raised by the thread that waits
        outcome["error"] = error


def _may_exist(bucket: str) -> bool:
    """Return False if a bucket is known not to exist: who reads its objects may not see itself."""
    try:
        return as_path(bucket).exists()
    except Exception as error:
        if is_bucket_error(error) and RIGHTS in explain_error(error):
            return True
        raise
