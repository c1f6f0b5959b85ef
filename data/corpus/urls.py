"""Find files of https://, http:// and s3://, and read those and files of gs://, in ranges.

https:// needs nothing but Python; s3:// is read through `s3fs`, which is asked for at use. A file
is never on the disk of this machine.
"""

import contextlib
import glob
import http.client
import importlib
import io
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

from data.corpus.byte_files import BUFFER_BYTES, UrlError
from data.corpus.paths import WEB, as_path, strip_query

TIMEOUT = 60.0  # seconds without a byte
WAITS = (0.5, 2.0, 8.0)  # seconds before a request is made again
RANGE_BYTES = 32 << 20  # that one request asks for, so that little is sent in vain
SKIPPED_BYTES = 1 << 16  # that are read to come to a later byte
LATER = (408, 425, 429, 500, 502, 503, 504)  # statuses after which a request is made again
RIGHTS = "the server refuses: write a URL that it accepts without a login, such as a signed one"
S3_RIGHTS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for a public bucket set "
    "FSSPEC_S3_ANON=true, and for a service other than Amazon's FSSPEC_S3_ENDPOINT_URL"
)


class FoundUrls(NamedTuple):
    """The files of a source.

    Attributes:
      files: (URL, bytes, a number of its version) of each, in order.
      ignored: URLs of files with other names.
      has_ranges: whether parts of the files can be read.
    """

    files: tuple[tuple[str, int, int], ...]
    ignored: tuple[str, ...] = ()
    has_ranges: bool = True


def find_files(name: str, suffixes: tuple[str, ...] | None, remedy: str) -> FoundUrls:
    """Return the files of https://FILE, s3://BUCKET/FILE, a folder or a pattern of s3://.

    Args:
      suffixes: ends of the names of the files that are read; None: of any file.
      remedy: what the message says of a file with another name.

    Raises:
      FileNotFoundError: there is no such file.
      UrlError: the server refuses, or cannot be reached.
      ValueError: the file has another name, or a pattern is not supported.
    """
    if name.startswith("s3://"):
        return _find_in_s3(name, suffixes, remedy)
    if glob.has_magic(strip_query(name)):
        raise ValueError(f"{name}: a server has no list of files; name each URL as a source")
    _check_name(name, suffixes, remedy)
    with HttpFile(name) as file:
        pass  # its head says all
    if file.size is None:
        raise UrlError(f"{name}: the server sends no size of the file; download it (curl -LO URL)")
    return FoundUrls(((name, file.size, zlib.crc32(file.version.encode())),), (), file.has_ranges)


def open_remote(url: str, stack: contextlib.ExitStack) -> IO[bytes]:
    """Return a file of https://, s3:// or gs:// that `stack` closes.

    Raises: as `find_files`; for gs://, what its library raises.
    """
    file: Any
    if url.startswith(WEB):
        file = HttpFile(url)
    elif url.startswith("s3://"):
        file = _call_s3(url, lambda files: files.open(url, "rb"))
    else:
        file = as_path(url).open("rb")
    return io.BufferedReader(_RemoteFile(stack.enter_context(file)), BUFFER_BYTES)


class _RemoteFile(io.RawIOBase):
    """A file that a library opens, with the interface that io.BufferedReader needs."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _check_name(name: str, suffixes: Sequence[str] | None, remedy: str) -> None:
    """Raise ValueError unless the name of a file ends with one of the suffixes."""
    if suffixes and not strip_query(name).endswith(tuple(suffixes)):
        ends = ", ".join(end for end in suffixes if end.count(".") == 1)
        raise ValueError(f"{name}: a source ends in {ends}; {remedy}")


# ---- https:// ----------------------------------------------------------------


class _OnlyHttp(urllib.request.HTTPRedirectHandler):
    """Follows no redirection to another scheme, nor from https:// to http://."""

    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        schemes = ("https",) if req.full_url.startswith("https:") else ("https", "http")
        if urllib.parse.urlsplit(newurl).scheme not in schemes:
            fp.close()
            raise UrlError(f"{req.full_url}: the server redirects to {newurl[:200]}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class HttpFile(io.RawIOBase):
    """A file of a web server, read in ranges. A broken connection is made again where it broke.

    Attributes:
      size: in bytes; None: the server does not say.
      version: its size, entity tag and time of change, by which a changed file is known.
      has_ranges: whether the server sends parts of it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.size, self.version, self.has_ranges = None, "", True
        self._answer: Any = None
        self._offset = self._answer_at = 0
        try:
            self._answer = self._request(0)
        except urllib.error.HTTPError as error:
            if error.code != 416:  # of an empty file
                raise self._explain(error) from error
            error.close()
            self.size = 0
        except (http.client.HTTPException, OSError) as error:
            raise self._explain(error) from error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.has_ranges

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self.size or 0}[whence]
        self._offset = base + offset
        return self._offset

    def tell(self) -> int:
        return self._offset

    def close(self) -> None:
        self._drop_answer()
        super().close()

    def readinto(self, buffer: Any) -> int:
        for wait in (*WAITS, None):
            try:
                data = self._read_some(len(buffer))
                break
            except (http.client.HTTPException, OSError) as error:
                self._drop_answer()
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                code = error.code if isinstance(error, urllib.error.HTTPError) else None
                lasting = code is not None and code not in LATER
                if wait is None or lasting or isinstance(error, UrlError) or not self.has_ranges:
                    raise self._explain(error) from error
                time.sleep(wait)
        buffer[: len(data)] = data
        self._offset += len(data)
        self._answer_at += len(data)
        return len(data)

    def _read_some(self, size: int) -> bytes:
        """Return at least one byte from the offset on; none at the end of the file."""
        if self.size is not None and self._offset >= self.size:
            return b""
        skipped = self._offset - self._answer_at
        if self._answer is not None and 0 < skipped <= SKIPPED_BYTES:
            self._answer_at += len(self._answer.read(skipped))
        if self._answer is None or self._answer_at != self._offset:
            self._drop_answer()
            self._answer, self._answer_at = self._request(self._offset), self._offset
        data = self._answer.read(size)
        if data or self.size is None:
            return data
        self._drop_answer()  # the end of a range, or a connection that broke
        if not self.has_ranges:
            raise http.client.IncompleteRead(b"", self.size - self._offset)
        self._answer, self._answer_at = self._request(self._offset), self._offset
        if not (data := self._answer.read(size)):
            raise http.client.IncompleteRead(b"", self.size - self._offset)
        return data

    def _request(self, offset: int) -> Any:
        """Return the answer with the bytes from an offset on."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "cloze"}
        headers["Range"] = f"bytes={offset}-{offset + RANGE_BYTES - 1}"
        opener = urllib.request.build_opener(_OnlyHttp)
        answer = opener.open(urllib.request.Request(self.url, headers=headers), timeout=TIMEOUT)
        size = answer.headers.get("Content-Length")
        if answer.status == 206:
            size = answer.headers.get("Content-Range", "").rpartition("/")[2]
        elif offset:
            answer.close()
            raise UrlError(
                f"{self.url}: the server sends no parts of files; download it (curl -LO URL) and "
                "name the file"
            )
        else:
            self.has_ranges = False
        tags = (answer.headers.get("ETag"), answer.headers.get("Last-Modified"))
        version = "\n".join(map(str, (size, *tags)))
        if self.version not in ("", version):
            answer.close()
            raise UrlError(f"{self.url}: the file was changed while it was read")
        self.version, self.size = version, int(size) if str(size).isdecimal() else None
        return answer

    def _drop_answer(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._answer = None

    def _explain(self, error: Exception) -> OSError:
        """Return the error of a request with the URL and the remedy, on one line."""
        if isinstance(error, UrlError):
            return error
        if not isinstance(error, urllib.error.HTTPError):
            reason = " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
            return UrlError(
                f"{self.url}: cannot be read ({reason}); check the network and its proxy "
                "(HTTPS_PROXY)"
            )
        error.close()
        shown = f"{self.url}: the server answers {error.code} ({error.reason})"
        if error.code in (404, 410):
            return FileNotFoundError(shown)
        return UrlError(f"{shown}; {RIGHTS}" if error.code in (401, 403) else shown)


# ---- s3:// -------------------------------------------------------------------


def _find_in_s3(name: str, suffixes: tuple[str, ...] | None, remedy: str) -> FoundUrls:
    """Return the files of a file, folder or pattern of s3://."""

    def list_found(files: Any) -> dict[str, dict[str, Any]]:
        if glob.has_magic(name):
            return files.glob(name, detail=True)
        found = files.find(name, detail=True)
        if not found:
            raise FileNotFoundError
        if len(found) == 1 and files._strip_protocol(name) in found:
            _check_name(name, suffixes, remedy)
        return found

    found = _call_s3(name, list_found)
    root = name.removeprefix("s3://").partition("*")[0].rstrip("/")
    files, ignored = [], []
    for path, entry in sorted(found.items()):
        inner = path.removeprefix(root).split("/")
        if entry.get("type") != "file" or any(part.startswith(".") for part in inner):
            continue
        url = f"s3://{path.lstrip('/')}"
        if suffixes and not path.endswith(suffixes):
            ignored.append(url)
            continue
        version = str(entry.get("ETag") or entry.get("LastModified") or entry.get("created") or "")
        files.append((url, int(entry["size"]), zlib.crc32(version.encode())))
    return FoundUrls(tuple(files), tuple(ignored))


def _call_s3(url: str, call: Callable[[Any], Any]) -> Any:
    """Return what a call of fsspec's file system for s3:// returns; explain its errors."""
    try:
        fsspec = importlib.import_module("fsspec")
        files = fsspec.filesystem("s3")
    except ImportError:
        raise ValueError(f"{url}: reading s3:// needs s3fs: pip install s3fs") from None
    try:
        return call(files)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url}: no such file or bucket") from error
    except ValueError:
        raise
    except Exception as error:  # of botocore, whose errors have no class in common with others
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        refused = isinstance(error, PermissionError) or "Credentials" in type(error).__name__
        raise UrlError(f"{url}: {reason}" + (f"; {S3_RIGHTS}" if refused else "")) from error
