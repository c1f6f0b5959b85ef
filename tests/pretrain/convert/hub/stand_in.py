"""A stand-in of the Hugging Face Hub on 127.0.0.1, for the real client `huggingface_hub`.

It has what the client calls to push and to download: accounts, repositories with commits, branches
and pull requests, the storage of large files (Git LFS), and downloads by redirection and by range.
It checks what the Hub checks: tokens and their roles, the SHA-256 of what is stored, and that a
commit names stored files and its parent.
"""

import base64
import contextlib
import dataclasses
import fnmatch
import hashlib
import http.server
import json
import re
import struct
import threading
import urllib.parse

LARGE = ("*.safetensors", "*.bin", "*.npz", "*.h5", "*.parquet", "params/*/d/*", "params/d/*")
WRITER, READER, STRANGER = "hf_writer", "hf_reader", "hf_stranger"

DATASETS = "datasets/"  # begins the names of repositories of data sets


@dataclasses.dataclass
class Account:
    name: str
    orgs: tuple = ()
    role: str = "write"


@dataclasses.dataclass
class Repository:
    private: bool = False
    gated: bool = False
    refs: dict = dataclasses.field(default_factory=dict)  # {branch: commit}
    commits: dict = dataclasses.field(default_factory=dict)  # {commit: {path: bytes}}
    messages: list = dataclasses.field(default_factory=list)

    def add_commit(self, ref, files, message):
        content = json.dumps([ref, message, len(self.commits), sorted(files)])
        commit = hashlib.sha1(content.encode()).hexdigest()
        self.commits[commit], self.refs[ref] = dict(files), commit
        self.messages.append(message)
        return commit


class Refused(Exception):
    def __init__(self, status, message, code=None):
        self.status, self.message, self.code = status, message, code


def is_large(path, content):
    return any(fnmatch.fnmatch(path, pattern) for pattern in LARGE)


def hash_git(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def read_shard(content):
    """Return {SHA-256: hash of the file} of a shard, the index of Xet's storage.

    After a header of 48 bytes, each file has records of 48 bytes: its hash, flags and number of
    segments; the segments; for a flag as many checks; for another the SHA-256. A hash of ones ends
    the files. A hash is four numbers of eight bytes, the last byte first.
    """
    found, at = {}, 48
    while content[at : at + 32] != b"\xff" * 32:
        flags, count = struct.unpack_from("<II", content, at + 32)
        last = at + 48 * (1 + count * (2 if flags >> 31 else 1))
        if flags >> 30 & 1:
            found[read_hash(content, last)] = read_hash(content, at)
            last += 48
        at = last
    return found


def read_hash(content, at):
    return "".join(f"{number:016x}" for number in struct.unpack_from("<4Q", content, at))


class Hub:
    """The state of the stand-in. `url` is its address, `storage` the large files'."""

    def __init__(self):
        self.accounts = {
            WRITER: Account("ann", ("lab",)),
            READER: Account("ann", ("lab",), "read"),
            STRANGER: Account("bob"),
        }
        self.repositories = {"ann/old": Repository()}
        self.repositories["ann/old"].add_commit("main", {".gitattributes": b"*.bin"}, "initial")
        self.stored = {}  # {sha256: bytes}
        self.requests = []  # (method, path)
        self.failures = []  # [regex of "METHOD path", status, how often]
        self.declared = {}  # {path: size} that differs from the true one
        self.sent = {}  # {path: bytes} that are sent instead of the true ones
        self.broken = {}  # {path: number of bytes after which the connection ends, once}
        self.lost = ""  # regex of "METHOD path" whose answers are lost
        self.xet = None  # the folder of Xet's storage; None: there is only Git LFS
        self.hooks = {}  # {regex of "METHOD path": what is called before the answer}
        self.lock = threading.Lock()

    def fail(self, pattern, status, times=1000):
        self.failures.append([pattern, status, times])

    def count(self, pattern):
        return sum(bool(re.search(pattern, " ".join(entry))) for entry in self.requests)

    def add(self, name, files, **options):
        repository = self.repositories[name] = Repository(**options)
        return repository.add_commit("main", files, "initial")

    def files(self, name, ref="main"):
        repository = self.repositories[name]
        return repository.commits[repository.refs[ref]]

    # ---- who may do what -----------------------------------------------------------

    def find_account(self, headers):
        authorization = headers.get("Authorization")
        if authorization is None:
            return None
        account = self.accounts.get(authorization.removeprefix("Bearer "))
        if account is None:
            raise Refused(401, "Invalid credentials in Authorization header")
        return account

    def open(self, name, account, write=False):
        repository = self.repositories.get(name)
        owners = (account.name, *account.orgs) if account else ()
        owned = name.removeprefix(DATASETS).partition("/")[0] in owners
        if repository is None or (repository.private and not owned):
            status = 404 if account else 401
            raise Refused(status, "Repository not found", "RepoNotFound")
        if write and account is None:
            raise Refused(401, "Invalid username or password.")
        if write and (not owned or account.role == "read"):
            raise Refused(403, "you are not allowed to write to this repository")
        return repository

    def resolve(self, repository, revision):
        revision = urllib.parse.unquote(revision)
        if revision in repository.refs:
            return repository.refs[revision]
        if revision in repository.commits:
            return revision
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    # ---- what is asked -------------------------------------------------------------

    def describe_file(self, path, content):
        size = self.declared.get(path, len(content))
        entry = {"rfilename": path, "size": size, "blobId": hash_git(content)}
        if is_large(path, content):
            sha = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"size": size, "sha256": sha, "pointerSize": 130}
        return entry

    def find_xet_hash(self, sha256):
        """Return the hash of a file in Xet's storage; None if it is not there."""
        if self.xet is None:
            return None
        found = {}
        for path in self.xet.glob("xet/xorbs/shards/*.mdb"):
            found |= read_shard(path.read_bytes())
        return found.get(sha256)

    def whoami(self, account):
        if account is None:
            raise Refused(401, "Invalid username or password.")
        orgs = [{"name": name} for name in account.orgs]
        token = {"accessToken": {"displayName": "t", "role": account.role}}
        return {"type": "user", "name": account.name, "orgs": orgs, "auth": token}

    def create(self, account, body):
        owner = body.get("organization") or account.name
        name = f"{owner}/{body['name']}"
        if account.role == "read" or owner not in (account.name, *account.orgs):
            raise Refused(403, "You don't have the rights to create a model under this namespace")
        if name in self.repositories:
            raise Refused(409, "You already created this model repo")
        private = body.get("private") or body.get("visibility") == "private"
        self.add(name, {".gitattributes": b"*.safetensors filter=lfs"}, private=bool(private))
        return {"url": f"{self.url}/{name}", "name": name}

    def preupload(self, account, name, revision, body, query):
        repository = self.open(name, account, write="create_pr" not in query)
        commit = self.resolve(repository, revision)
        present = repository.commits[commit]
        ignored = present.get(".gitignore", b"").decode().split()
        return {
            "files": [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if is_large(file["path"], b"") else "regular",
                    "shouldIgnore": any(fnmatch.fnmatch(file["path"], p) for p in ignored),
                    "oid": None,
                }
                for file in body["files"]
            ]
        }

    def list_actions(self, body):
        objects = []
        for wanted in body["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.stored:
                entry["actions"] = {
                    "upload": {"href": f"{self.storage}/{wanted['oid']}"},
                    "verify": {"href": f"{self.url}/verify"},
                }
            objects.append(entry)
        return {"transfer": "basic", "objects": objects}

    def verify(self, body):
        if len(self.stored.get(body["oid"], b"")) != body["size"]:
            raise Refused(400, "the stored file has another size")
        return {}

    def store(self, oid, content):
        if hashlib.sha256(content).hexdigest() != oid:
            raise Refused(400, "the content has another SHA-256")
        self.stored[oid] = content
        return {}

    def commit(self, account, name, revision, lines, query):
        header, *operations = map(json.loads, lines.splitlines())
        proposed = "create_pr" in query
        with self.lock:
            repository = self.open(name, account, write=not proposed)
            parent = self.resolve(repository, revision)
            if header["value"].get("parentCommit", parent) != parent:
                raise Refused(412, "A commit has happened since. Please refresh and try again.")
            files = dict(repository.commits[parent])
            for operation in operations:
                value = operation["value"]
                if operation["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif operation["key"] == "lfsFile":
                    if value["oid"] not in self.stored:
                        raise Refused(400, f"{value['path']} is not stored")
                    files[value["path"]] = self.stored[value["oid"]]
                else:
                    assert operation["key"] == "deletedFile"
                    del files[value["path"]]
            ref = f"refs/pr/{len(repository.refs)}" if proposed else urllib.parse.unquote(revision)
            commit = repository.add_commit(ref, files, header["value"]["summary"])
        answer = {"commitUrl": f"{self.url}/{name}/commit/{commit}", "commitOid": commit}
        if proposed:
            answer["pullRequestUrl"] = f"{self.url}/{name}/discussions/{ref.split('/')[-1]}"
        return answer

    def give_xet_token(self, account, name, write):
        self.open(name, account, write=write)
        return {"casUrl": f"local://{self.xet}", "accessToken": "xet", "exp": 1 << 32}

    def branch(self, account, name, branch):
        repository = self.open(name, account, write=True)
        repository.refs[urllib.parse.unquote(branch)] = repository.refs["main"]
        return {}

    def describe(self, account, name, revision):
        repository = self.open(name, account)
        commit = self.resolve(repository, revision)
        siblings = [self.describe_file(*entry) for entry in repository.commits[commit].items()]
        return {
            "id": name,
            "modelId": name,
            "sha": commit,
            "private": repository.private,
            "gated": repository.gated,
            "siblings": siblings,
            "tags": [],
            "downloads": 0,
        }

    def describe_paths(self, account, name, revision, body):
        wanted = set(urllib.parse.parse_qs(body.decode())["paths"])
        return [
            entry for entry in self.list_tree(account, name, revision) if entry["path"] in wanted
        ]

    def list_tree(self, account, name, revision, folder=""):
        entries = []
        if folder:
            raise Refused(404, f"{folder} does not exist", "EntryNotFound")
        for file in self.describe(account, name, revision)["siblings"]:
            entry = {"type": "file", "path": file["rfilename"], "size": file["size"]}
            entry["oid"] = file["blobId"]
            if "lfs" in file:
                large = file["lfs"]
                entry["lfs"] = {"oid": large["sha256"], "size": large["size"], "pointerSize": 130}
                entry["xetHash"] = self.find_xet_hash(large["sha256"])
            entries.append(entry)
        return entries


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it delays the second part of each answer by 40 ms
    hub: Hub

    def log_message(self, *words):
        pass

    def answer(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        self.hub.requests.append((self.command, url.path))
        for pattern, call in self.hub.hooks.items():
            if re.search(pattern, f"{self.command} {url.path}"):
                call()
        try:
            for failure in self.hub.failures:
                if failure[2] and re.search(failure[0], f"{self.command} {url.path}"):
                    failure[2] -= 1
                    raise Refused(failure[1], "made to fail")
            self.route(url.path, query, body)
        except Refused as refused:
            headers = {"X-Error-Message": refused.message}
            headers |= {"X-Error-Code": refused.code} if refused.code else {}
            self.send(refused.status, json.dumps({"error": refused.message}).encode(), headers)

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def route(self, path, query, body):
        hub, command = self.hub, self.command
        if match := re.fullmatch(r"/storage/(\w+)", path):
            assert "Authorization" not in self.headers, "the storage is given the token"
            if command == "PUT":
                return self.send_json(hub.store(match[1], body))
            return self.send_content(hub.stored[match[1]])
        account = hub.find_account(self.headers)
        path = path.replace("/api/datasets/", f"/api/models/{DATASETS}")
        if match := re.fullmatch(rf"/((?:{DATASETS})?[^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)", path):
            return self.send_file(account, *match.groups())
        if command == "GET" and path == "/api/whoami-v2":
            return self.send_json(hub.whoami(account))
        if match := re.fullmatch("/api/models/(.+)/xet-(read|write)-token/(.+)", path):
            token = hub.give_xet_token(account, match[1], match[2] == "write")
            headers = {
                "X-Xet-Cas-Url": token["casUrl"],
                "X-Xet-Access-Token": token["accessToken"],
                "X-Xet-Token-Expiration": str(token["exp"]),
            }
            return self.send(200, json.dumps(token).encode(), headers)
        routes = [
            ("POST /verify", lambda: hub.verify(json.loads(body))),
            ("POST /api/validate-yaml", lambda: {"errors": [], "warnings": []}),
            ("POST /api/repos/create", lambda: hub.create(account, json.loads(body))),
            (r"POST /(.+)\.git/info/lfs/objects/batch", lambda name: self.list_actions(body)),
            ("POST /api/models/(.+)/preupload/(.+)",
             lambda *at: hub.preupload(account, *at, json.loads(body), query)),
            ("POST /api/models/(.+)/commit/(.+)", lambda *at: hub.commit(account, *at, body, query)),
            ("POST /api/models/(.+)/branch/(.+)", lambda *at: hub.branch(account, *at)),
            ("POST /api/models/(.+)/paths-info/(.+)",
             lambda *at: hub.describe_paths(account, *at, body)),
            ("GET /api/models/(.+)/tree/([^/]+)", lambda *at: hub.list_tree(account, *at)),
            ("GET /api/models/(.+)/tree/([^/]+)/(.+)", lambda *at: hub.list_tree(account, *at)),
            ("GET /api/models/(.+)/revision/(.+)", lambda *at: hub.describe(account, *at)),
            ("GET /api/models/(.+)", lambda name: hub.describe(account, name, "main")),
        ]  # fmt: skip
        for pattern, reply in routes:
            if match := re.fullmatch(pattern, f"{command} {path}"):
                return self.send_json(reply(*match.groups()))
        raise Refused(404, f"the stand-in has no {command} {path}")

    def list_actions(self, body):
        return self.hub.list_actions(json.loads(body))

    def send_file(self, account, name, revision, path):
        hub = self.hub
        repository = hub.open(name, account)
        if repository.gated and account is None:
            raise Refused(401, "Access to this model is restricted.", "GatedRepo")
        commit = hub.resolve(repository, revision)
        path = urllib.parse.unquote(path)
        if path not in repository.commits[commit]:
            raise Refused(404, "Entry not found", "EntryNotFound")
        content = repository.commits[commit][path]
        headers = {"X-Repo-Commit": commit}
        if is_large(path, content):
            sha = hashlib.sha256(content).hexdigest()
            sent = hub.sent.get(path, content)
            hub.stored[sha] = sent
            headers |= {"X-Linked-Etag": f'"{sha}"', "Location": f"{hub.storage}/{sha}"}
            if xet := hub.find_xet_hash(sha):
                headers["X-Xet-Hash"] = xet
                headers["X-Xet-Refresh-Route"] = f"/api/models/{name}/xet-read-token/{commit}"
            headers["X-Linked-Size"] = str(hub.declared.get(path, len(content)))
            return self.send(302, b"", headers)
        self.send_content(content, {**headers, "ETag": f'"{hash_git(content)}"'})

    def send_content(self, content, headers=()):
        headers, status = dict(headers), 200
        if match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            headers["Content-Range"] = f"bytes {match[1]}-{len(content) - 1}/{len(content)}"
            content, status = content[int(match[1]) :], 206
        self.send(status, content, headers)

    def send_json(self, value):
        self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send(self, status, content, headers):
        if self.hub.lost and re.search(self.hub.lost, f"{self.command} {self.path}"):
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        cut = self.hub.broken.pop(self.path, None) if self.command == "GET" else None
        if cut is not None:
            self.wfile.write(content[:cut])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(content)


@contextlib.contextmanager
def serve_hub():
    """Yield a stand-in that answers until the block ends."""
    hub = Hub()
    handler = type("OwnHandler", (Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        hub.storage = f"http://localhost:{server.server_address[1]}/storage"  # another host
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
