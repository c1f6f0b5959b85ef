"""One pod as gcloud knows it: a queued resource of one slice or several, and the commands that make, reach and delete it."""

import dataclasses
import json
import os
import shlex
import subprocess
from typing import Any

# TPU generation -> the runtime image that Google's page "TPU software versions" names for JAX.
RUNTIMES = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
ALL = (
    "--node=all",
    "--worker=all",
    "--batch-size=all",
)  # in batches a failing one would end the command before the next
WORKER = "cloze/tree/pretrain/pod/worker.sh"
PATIENCE = 1800  # seconds until a command that does not return is given up: installing takes minutes, a dead connection forever
GLANCE = 300  # the same for a command that only asks


class GcloudError(Exception):
    """A gcloud command failed; the text is what it said."""


@dataclasses.dataclass(frozen=True)
class PodRequest:
    """What to ask for; the same again after a preemption."""

    type: str
    runtime: str
    spot: bool = False
    slices: int = 1
    flags: tuple = ()


@dataclasses.dataclass(frozen=True)
class PodState:
    """What `describe` tells of a queued resource."""

    name: str
    initiator: str = ""  # who brought it into SUSPENDING or SUSPENDED: USER or SERVICE
    type: str = ""
    spot: bool = False
    slices: int = 1


@dataclasses.dataclass(frozen=True)
class WorkerReport:
    """What a worker tells of its training: running, exited, stopped (by `pod stop`), lost (no trace of its end), idle
    (never begun) or empty (nothing was pushed)."""

    host: str
    state: str
    code: int


class Pod:
    """The commands for one queued resource. Raises GcloudError where one fails."""

    def __init__(self, name, zone, project=None, connect=()):
        self.name, self.zone = name, zone
        self.project = [f"--project={project}"] if project else []
        self.connect = list(connect)

    def gcloud(self, verb, *words, target=None, group="queued-resources"):
        return [
            "gcloud",
            "compute",
            "tpus",
            group,
            verb,
            *(target or [self.name]),
            f"--zone={self.zone}",
            *self.project,
            *words,
        ]

    def call(self, command, show=False, limit=PATIENCE):
        """Run a command; its output as text, or, with `show`, passed on as it comes, for as long as it likes."""
        env = {
            name: value for name, value in os.environ.items() if name != "NO_GCE_CHECK"
        }  # meant for TensorFlow
        try:
            streams: dict[str, Any] = (
                {} if show else {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            )
            limit = None if show else limit
            done = subprocess.run(
                command, **streams, text=True, env=env, stdin=subprocess.DEVNULL, timeout=limit
            )
        except FileNotFoundError:
            raise ValueError(
                "there is no `gcloud` on PATH: install the Google Cloud CLI, then `gcloud auth login`"
            ) from None
        except subprocess.TimeoutExpired:
            raise GcloudError(f"no answer in {limit} s from: {shlex.join(command)}") from None
        if done.returncode:
            raise GcloudError(
                (done.stderr or "").strip()
                or f"status {done.returncode} from: {shlex.join(command)}"
            )
        if "Could not prepare all" in (
            done.stderr or ""
        ):  # gcloud then leaves whole slices out, and exits 0
            raise GcloudError(done.stderr.strip())
        return done.stdout or ""

    def describe(self):
        """The PodState, or None where there is no such queued resource."""
        try:
            said = json.loads(self.call(self.gcloud("describe", "--format=json"), limit=GLANCE))
        except GcloudError as error:
            if "NOT_FOUND" in str(error):
                return None
            raise
        except json.JSONDecodeError as error:
            raise GcloudError(f"describe {self.name} answered with no JSON: {error}") from None
        nodes = said.get("tpu", {}).get("nodeSpec", [{}])
        count = max(len(nodes), int(nodes[0].get("multisliceParams", {}).get("nodeCount", 1)))
        state = said.get("state", {})
        kind = nodes[0].get("node", {}).get("acceleratorType", "")
        return PodState(
            state.get("state", "UNKNOWN"),
            state.get("stateInitiator", ""),
            kind,
            "spot" in said,
            count,
        )

    def create(self, request):
        nodes = [f"--node-id={self.name}"]
        if request.slices > 1:
            nodes = [f"--node-count={request.slices}", f"--node-prefix={self.name}"]
        spot = ["--spot"] if request.spot else []
        kind = [f"--accelerator-type={request.type}", f"--runtime-version={request.runtime}"]
        self.call(self.gcloud("create", *nodes, *kind, *spot, *request.flags, "--quiet"))

    def delete(self):
        """Delete the queued resource and its nodes (--force: gcloud refuses where there are nodes still)."""
        self.call(self.gcloud("delete", "--force", "--quiet"))

    def nodes(self, slices):
        """The states of the nodes: a queued resource may be ACTIVE still when its nodes are PREEMPTED."""
        names = [self.name] if slices == 1 else [f"{self.name}-{index}" for index in range(slices)]
        ask = [
            self.gcloud("describe", "--format=value(state)", target=[name], group="tpu-vm")
            for name in names
        ]
        return [self.call(command, limit=GLANCE).strip() for command in ask]

    def ssh(self, script, where=ALL, **options):
        """Run a shell script on the workers `where`, from their home folders."""
        return self.call(
            self.gcloud("ssh", *where, *self.connect, f"--command={script}", "--quiet"), **options
        )

    def worker(self, *words, env=None, **options):
        """Run `worker.sh WORDS` of the pushed tree."""
        before = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
        return self.ssh(shlex.join([*before, "bash", WORKER, *words]), **options)

    def push(self, path, tree):
        """Copy the archive at `path` to all workers, unpack it under the name `tree` and install what it needs."""
        self.call(
            self.gcloud(
                "scp",
                *ALL,
                *self.connect,
                "--quiet",
                target=[str(path), f"{self.name}:cloze.tar.gz"],
            )
        )
        folder = f"cloze/trees/{tree}"
        unpack = f"mkdir -p {folder} && tar -xzf cloze.tar.gz -C {folder}"
        return self.ssh(f"{unpack} && bash {folder}/pretrain/pod/worker.sh settle {tree}")

    def reports(self):
        """A WorkerReport of each worker that answered."""
        script = f'bash {WORKER} status || echo "cloze-worker $(hostname) empty 0"'
        lines = (line.split() for line in self.ssh(script, limit=GLANCE).splitlines())
        return sorted(
            (
                WorkerReport(line[1], line[2], int(line[3]))
                for line in lines
                if line[:1] == ["cloze-worker"]
            ),
            key=lambda r: r.host,
        )


class Rehearsal(Pod):
    """Prints each command that would run, and answers as a pod on which all goes well."""

    def __init__(self, *words, exists=True):
        super().__init__(*words)
        self.exists, self.state = exists, "idle"

    def call(self, command, **options):
        print(shlex.join(command))
        verb, said = command[4], command[-2]
        if verb == "create":
            self.exists = True
        elif verb == "delete":
            self.exists = False
        elif verb == "describe":
            if not self.exists:
                raise GcloudError("NOT_FOUND")
            return json.dumps({"state": {"state": "ACTIVE"}})
        elif verb == "ssh" and " start " in said:
            self.state = "exited"
        elif verb == "ssh" and "worker.sh status" in said:
            return f"cloze-worker every-worker {self.state} 0\n"
        return ""
