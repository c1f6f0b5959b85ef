"""Files of a web server and of S3 give the documents that they give on this machine."""

import contextlib
import gzip
import http.server
import importlib
import io
import re
import threading

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from data.corpus import sources, urls
from data.corpus.byte_files import UrlError
from pretrain.__main__ import main
from tests.data.corpus.reading import json_lines, read_documents

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
zstandard = pytest.importorskip("zstandard")
REGISTRY = importlib.import_module("fsspec.registry")  # the package has a mapping of this name
TEXTS = [f"{i} One line, of a text." for i in range(300)]


def write_tables():
    """Return {name: content} of a file of each form."""
    table = pyarrow.table({"id": range(300), "text": TEXTS, "long": [bytes([i % 7]) * 3000 for i in range(300)]})  # fmt: skip
    file, stream = io.BytesIO(), io.BytesIO()
    parquet.write_table(table, file, row_group_size=50, compression="none", use_dictionary=False)
    with pyarrow.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    lines = json_lines(*TEXTS).encode()
    rows = "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS))
    return {
        "a.parquet": file.getvalue(),
        "a.arrow": stream.getvalue(),
        "a.csv": f"id,text\n{rows}".encode(),
        "a.jsonl": lines,
        "a.jsonl.gz": gzip.compress(lines),
        "a.jsonl.zst": zstandard.compress(lines),
        "a.txt": "\n".join(TEXTS).encode(),
    }


FILES = write_tables()


def get_options(name):
    return {"document": "record"} if name.endswith(".txt") else {}


class Web:
    """What a server has, was asked for, and does wrong."""

    url = ""

    def __init__(self):
        self.files, self.requests = dict(FILES), []
        self.statuses, self.moved, self.tags = {}, {}, {}
        self.breaks, self.has_ranges = [], True


class Server(http.server.ThreadingHTTPServer):
    web: Web


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves FILES with ranges."""

    server: Server

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *words):
        pass

    def do_GET(self):
        web, path = self.server.web, self.path.split("?")[0].lstrip("/")
        web.requests.append((path, self.headers.get("Range")))
        content, status = web.files.get(path), 200
        if path in web.statuses:
            status, *times = web.statuses[path]
            if not times or times[0] > 0:
                web.statuses[path] = (status, *(number - 1 for number in times))
                return self.send(status, b"")
        if path in web.moved:
            return self.send(302, b"", {"Location": web.moved[path]})
        if content is None:
            return self.send(404, b"")
        headers = {"ETag": web.tags.get(path, '"1"')}
        if web.has_ranges and (match := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])):
            first, last = int(match[1]), min(int(match[2]), len(content) - 1)
            if first >= len(content):
                return self.send(416, b"")
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content, status = content[first : last + 1], 206
        self.send(status, content, headers)

    def send(self, status, content, headers=()):
        web = self.server.web
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        cut = web.breaks.pop() if web.breaks and len(content) > 1000 else len(content)
        with contextlib.suppress(ConnectionError):
            self.wfile.write(content[:cut])
        self.close_connection = True


@pytest.fixture
def web(monkeypatch):
    """Serve FILES on this machine; a broken request is made again at once."""
    monkeypatch.setattr(urls, "WAITS", (0.0, 0.0, 0.0))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.web = web = Web()
        web.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield web
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("has_ranges", [True, False])
def test_each_form_by_the_web(web, tmp_path, name, has_ranges):
    web.has_ranges = has_ranges
    if not has_ranges and name in ("a.parquet", "a.arrow"):
        with pytest.raises(UrlError, match=rf"^{web.url}/{name}: the server sends no parts"):
            read_documents(f"{web.url}/{name}")
        return
    for size in (len(FILES[name]) // 3, 1 << 20):
        assert read_documents(f"{web.url}/{name}?key=1", size, **get_options(name)) == TEXTS
    found = sources.resolve_source(f"{web.url}/{name}")
    chunks = sources.split_source(found, len(FILES[name]) // 3, tmp_path)
    is_cut = has_ranges and name in ("a.parquet", "a.jsonl")
    assert (len(list(chunks)) > 1) == is_cut


def test_of_parquet_only_the_columns_that_are_read_are_sent(web, monkeypatch):
    """Three columns of which one is read; the largest has 900 kB."""
    monkeypatch.setattr(urls, "RANGE_BYTES", 1 << 14)
    monkeypatch.setattr("data.corpus.urls.BUFFER_BYTES", 1 << 14)
    assert read_documents(f"{web.url}/a.parquet") == TEXTS
    assert len(FILES["a.parquet"]) > 900_000 and len(web.requests) << 14 < 500_000


def test_a_broken_connection_goes_on_where_it_broke(web):
    for name in ("a.jsonl", "a.parquet"):
        web.breaks = [500]  # of the answer that the seek goes on with
        with urls.HttpFile(f"{web.url}/{name}") as file:
            web.breaks, web.statuses = [0, 1], {name: (503, 1)}
            file.seek(1000)
            whole = b"".join(iter(lambda file=file: file.read(2000), b""))
            assert whole == FILES[name][1000:] and not web.breaks
    web.has_ranges, web.breaks = False, [5000]
    with urls.HttpFile(f"{web.url}/a.jsonl") as file, pytest.raises(UrlError, match="IncompleteR"):
        list(iter(lambda: file.read(2000), b""))


def test_what_the_web_refuses(web, capsys, tmp_path):
    """One line with the remedy for each, of `prepare` itself."""

    def get_error(name):
        words = [name if "://" in name else f"{web.url}/{name}", "--output", str(tmp_path / "no")]
        assert main(["prepare", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    web.statuses |= {"secret.txt": (403,), "login.txt": (401,)}
    web.moved |= {"local.txt": "file:///etc/passwd", "ftp.txt": "ftp://h/a.txt"}
    assert "the server answers 404" in get_error("absent.txt")
    for name in web.statuses:
        assert "refuses: write a URL that it accepts without a login" in get_error(name)
    for name, target in web.moved.items():
        assert target in get_error(name)
    assert "a server has no list of files" in get_error("*.txt")
    assert "a source ends in .txt, .jsonl" in get_error("a.pdf")
    assert "cannot be read (" in get_error("http://127.0.0.1:9/a.txt")
    web.files["b.txt"], web.moved["moved.txt"] = b"x", f"{web.url}/b.txt"
    assert read_documents(f"{web.url}/moved.txt") == ["x"]
    web.files["empty.txt"] = b""
    assert read_documents(f"{web.url}/empty.txt", document="record") == []


def test_a_file_that_changes_is_refused(web, monkeypatch):
    monkeypatch.setattr(urls, "RANGE_BYTES", 4096)
    with urls.HttpFile(f"{web.url}/a.jsonl") as file:
        assert len(file.read(4096)) == 4096
        web.tags["a.jsonl"] = '"2"'
        with pytest.raises(UrlError, match="was changed while it was read"):
            file.read(4096)
    before = sources.resolve_source(f"{web.url}/a.csv").identify_source()
    web.tags["a.csv"] = '"2"'
    assert sources.resolve_source(f"{web.url}/a.csv").identify_source() != before


# ---- s3:// -------------------------------------------------------------------


class Bucket(MemoryFileSystem):
    """A file system that fsspec takes for S3's."""

    protocol = "s3"
    store, pseudo_dirs = {}, [""]
    error: Exception | None = None

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("s3://", "memory://"))

    def find(self, path, **options):
        if self.error:
            raise self.error
        return super().find(path, **options)


@pytest.fixture
def bucket(monkeypatch):
    """Let s3://bucket have FILES in a folder, and others."""
    fsspec.register_implementation("s3", Bucket, clobber=True)
    files = Bucket()
    for name, content in (FILES | {".hidden.txt": b"x", "LICENSE": b"x"}).items():
        files.pipe(f"s3://bucket/all/{name}", content)
        files.pipe(f"s3://bucket/by-form/{name.replace('.', '-')}/{name}", content)
    yield files
    Bucket.store.clear()
    Bucket.error = None
    REGISTRY._registry.pop("s3", None)


@pytest.mark.parametrize("name", FILES)
def test_each_form_by_s3(bucket, name):
    options = get_options(name)
    for source in (f"s3://bucket/all/{name}", f"s3://bucket/by-form/{name.replace('.', '-')}"):
        for size in (len(FILES[name]) // 3, 1 << 20):
            assert read_documents(source, size, **options) == TEXTS


def test_a_pattern_and_what_s3_refuses(bucket, monkeypatch):
    assert len(read_documents("s3://bucket/all/*.jsonl*")) == 3 * len(TEXTS)
    assert len(read_documents("s3://bucket/by-form/*/a.[cj]s*")) == 4 * len(TEXTS)
    found = sources.resolve_source("s3://bucket/all", document="record")
    assert [path for path, *_ in found.files] == [
        f"s3://bucket/all/{name}" for name in sorted(FILES)
    ]
    assert found.ignored == ("s3://bucket/all/LICENSE",)
    for source in ("s3://bucket/none", "s3://other/a.txt"):
        with pytest.raises(FileNotFoundError, match=f"^{source}: no such file or bucket"):
            sources.resolve_source(source)
    with pytest.raises(FileNotFoundError, match="no .txt"):
        sources.resolve_source("s3://bucket/no/*.txt")
    with pytest.raises(ValueError, match="LICENSE: a source ends in .txt"):
        sources.resolve_source("s3://bucket/all/LICENSE")
    Bucket.error = PermissionError("Access Denied")
    with pytest.raises(
        UrlError, match=r"s3://bucket/all: PermissionError: Access Denied; set AWS_"
    ):
        sources.resolve_source("s3://bucket/all")
    REGISTRY._registry.pop("s3")
    monkeypatch.setitem(REGISTRY.known_implementations, "s3", {"class": "absent_s3.X", "err": "x"})  # fmt: skip
    with pytest.raises(ValueError, match="s3://bucket/all: reading s3:// needs s3fs: pip install"):
        sources.resolve_source("s3://bucket/all")
