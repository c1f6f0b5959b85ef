"""One pod as gcloud sees it: a queued resource of one slice or several, and its commands.

The commands create, reach and delete it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from pretrain.pod.answers import PodState, WorkerReport, parse_report, parse_state
from pretrain.pod.environment import START, format_exports, hide_values

# In smaller batches a failing one would end the command before the next.
ALL_WORKERS = ("--node=all", "--worker=all", "--batch-size=all")
WORKER_SCRIPT = "cloze/tree/pretrain/pod/worker.sh"
# Seconds after which a command that does not return is abandoned: installing takes minutes, and a
# dead connection never returns.
COMMAND_TIMEOUT = 1800
QUERY_TIMEOUT = 300  # the same for a command that only queries


class GcloudError(Exception):
    """A gcloud command failed; the text is gcloud's message."""


@dataclasses.dataclass(frozen=True)
class PodRequest:
    """The pod to request; a preempted pod is requested again with the same values.

    Attributes:
      type: accelerator type, such as "v5p-32".
      spot: whether the pod is preemptible.
      slices: number of slices of that type.
    """

    type: str
    runtime: str
    spot: bool = False
    slices: int = 1
    flags: tuple[str, ...] = ()


class Pod:
    """The commands for one queued resource.

    Every method that runs a command raises GcloudError if the command fails.
    """

    def __init__(
        self,
        name: str,
        zone: str,
        project: str | None = None,
        connect: Sequence[str] = (),
        private: Mapping[str, str] | None = None,
    ) -> None:
        """Name the queued resource.

        Args:
          project: Google Cloud project; gcloud's default if None.
          private: the variables of --env. Their values may be secrets, so that no command line, no
            message and no log has them.
        """
        self.private = dict(private or {})
        self.name, self.zone = name, zone
        self.project = [f"--project={project}"] if project else []
        self.connect = list(connect)

    def build_command(
        self,
        verb: str,
        *arguments: str,
        target: Sequence[str] | None = None,
        group: str = "queued-resources",
    ) -> list[str]:
        """Return the gcloud command for this pod.

        Args:
          target: what the verb acts on; the queued resource by default.
        """
        command = ["gcloud", "compute", "tpus", group, verb, *(target or [self.name])]
        return [*command, f"--zone={self.zone}", *self.project, *arguments]

    def run_command(
        self, command: list[str], show: bool = False, timeout: float | None = COMMAND_TIMEOUT
    ) -> str:
        """Run a command and return its output.

        Args:
          show: print the output as it arrives instead, without a time limit, and return "".
          timeout: seconds after which the command is abandoned.
        """
        # NO_GCE_CHECK is meant for TensorFlow.
        env = {name: value for name, value in os.environ.items() if name != "NO_GCE_CHECK"}
        try:
            names = () if show else ("stdout", "stderr")
            streams: dict[str, Any] = dict.fromkeys(names, subprocess.PIPE)
            timeout = None if show else timeout
            done = subprocess.run(
                command, **streams, text=True, env=env, stdin=subprocess.DEVNULL, timeout=timeout
            )
        except FileNotFoundError:
            raise ValueError(
                "there is no `gcloud` on PATH: install the Google Cloud CLI, "
                "then run `gcloud auth login`"
            ) from None
        except subprocess.TimeoutExpired:
            shown = hide_values(shlex.join(command), self.private)
            raise GcloudError(f"no answer in {timeout} s from: {shown}") from None
        stderr = hide_values((done.stderr or "").strip(), self.private)
        if done.returncode:
            shown = hide_values(shlex.join(command), self.private)
            raise GcloudError(stderr or f"status {done.returncode} from: {shown}")
        if "Could not prepare all" in stderr:  # gcloud then skips whole slices and exits with 0
            raise GcloudError(stderr)
        return done.stdout or ""

    def read_state(self) -> PodState | None:
        """Return the state of the queued resource, or None if it does not exist."""
        command = self.build_command("describe", "--format=json")
        try:
            answer = json.loads(self.run_command(command, timeout=QUERY_TIMEOUT))
        except GcloudError as error:
            if "NOT_FOUND" in str(error):
                return None
            raise
        except json.JSONDecodeError as error:
            raise GcloudError(f"describe {self.name} returned no JSON: {error}") from None
        if (state := parse_state(answer)) is None:
            raise GcloudError(f"describe {self.name} returned another answer: {answer!r:.200}")
        return state

    def create_pod(self, request: PodRequest) -> None:
        """Create the queued resource."""
        nodes = [f"--node-id={self.name}"]
        if request.slices > 1:
            nodes = [f"--node-count={request.slices}", f"--node-prefix={self.name}"]
        spot = ["--spot"] if request.spot else []
        kind = [f"--accelerator-type={request.type}", f"--runtime-version={request.runtime}"]
        self.run_command(
            self.build_command("create", *nodes, *kind, *spot, *request.flags, "--quiet")
        )

    def delete_pod(self) -> None:
        """Delete the queued resource and its nodes."""
        # Without --force gcloud refuses if there are still nodes.
        self.run_command(self.build_command("delete", "--force", "--quiet"))

    def list_node_states(self, num_slices: int) -> list[str]:
        """Return the states of the nodes of `num_slices` slices.

        A queued resource may still be ACTIVE when its nodes are PREEMPTED.
        """
        names = (
            [self.name]
            if num_slices == 1
            else [f"{self.name}-{index}" for index in range(num_slices)]
        )
        commands = [
            self.build_command("describe", "--format=value(state)", target=[name], group="tpu-vm")
            for name in names
        ]
        return [self.run_command(command, timeout=QUERY_TIMEOUT).strip() for command in commands]

    def run_script(self, script: str, where: Sequence[str] = ALL_WORKERS, **options: Any) -> str:
        """Run a shell script on workers, from their home folders, and return the output."""
        return self.run_command(
            self.build_command("ssh", *where, *self.connect, f"--command={script}", "--quiet"),
            **options,
        )

    def run_worker(
        self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> str:
        """Run the pushed tree's `worker.sh` with `arguments` and return the output.

        Args:
          env: environment variables of the script. Those of --env travel in a file, because
            command lines are seen in the lists of processes, and gcloud logs them.
        """
        private = {name: value for name, value in (env or {}).items() if name in self.private}
        shown = {name: value for name, value in (env or {}).items() if name not in private}
        if private:
            shown["CLOZE_ENV"] = self.send_variables(private)
        prefix = ["env", *(f"{name}={value}" for name, value in shown.items())] if shown else []
        return self.run_script(shlex.join([*prefix, "bash", WORKER_SCRIPT, *arguments]), **options)

    def send_variables(self, variables: Mapping[str, str]) -> str:
        """Copy variables to all workers, as a file that only its owner reads; return its name.

        `worker.sh` removes it.
        """
        name = f".cloze-env-{START}"
        with tempfile.TemporaryDirectory(prefix="cloze-env-") as folder:  # of mode 0700
            path = pathlib.Path(folder, "variables")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(format_exports(variables))
            self.copy_file(path, name)
        return name

    def copy_file(self, path: pathlib.Path, name: str) -> None:
        """Copy a file to the home folders of all workers."""
        target = [str(path), f"{self.name}:{name}"]
        self.run_command(
            self.build_command("scp", *ALL_WORKERS, *self.connect, "--quiet", target=target)
        )

    def push_tree(self, path: pathlib.Path, tree: str) -> str:
        """Copy an archive to all workers, unpack it and install its requirements."""
        self.copy_file(path, "cloze.tar.gz")
        folder = f"cloze/trees/{tree}"
        unpack = f"mkdir -p {folder} && tar -xzf cloze.tar.gz -C {folder}"
        return self.run_script(f"{unpack} && bash {folder}/pretrain/pod/worker.sh install {tree}")

    def list_reports(self) -> list[WorkerReport]:
        """Return the reports of the workers that answered, sorted by host."""
        script = f'bash {WORKER_SCRIPT} status || echo "cloze-worker $(hostname) empty 0"'
        reports = []
        for line in self.run_script(script, timeout=QUERY_TIMEOUT).splitlines():
            if line.startswith("cloze-worker"):
                if (report := parse_report(line)) is None:
                    raise GcloudError(f"the report of a worker is damaged: {line!r:.200}")
                reports.append(report)
        return sorted(reports, key=lambda report: report.host)


class DryRunPod(Pod):
    """A pod for dry runs: it prints each command and answers as if every command succeeded."""

    def __init__(
        self,
        name: str,
        zone: str,
        project: str | None = None,
        connect: Sequence[str] = (),
        private: Mapping[str, str] | None = None,
        exists: bool = True,
    ) -> None:
        """Name the pod; `exists` is whether the queued resource exists already."""
        super().__init__(name, zone, project, connect, private)
        self.exists, self.training_state = exists, "idle"

    def send_variables(self, variables: Mapping[str, str]) -> str:
        """Print the command that copies the variables, of which no file is written."""
        name = f".cloze-env-{START}"
        self.copy_file(pathlib.Path(f"FILE_OF_{'_'.join(variables)}"), name)
        return name

    def run_command(
        self, command: list[str], show: bool = False, timeout: float | None = COMMAND_TIMEOUT
    ) -> str:
        """Print a command and return the answer of a pod on which it succeeds."""
        print(hide_values(shlex.join(command), self.private))
        verb, script = command[4], command[-2]
        if verb == "create":
            self.exists = True
        elif verb == "delete":
            self.exists = False
        elif verb == "describe":
            if not self.exists:
                raise GcloudError("NOT_FOUND")
            return json.dumps({"state": {"state": "ACTIVE"}})
        elif verb == "ssh" and " start " in script:
            self.training_state = "exited"
        elif verb == "ssh" and "worker.sh status" in script:
            return f"cloze-worker every-worker {self.training_state} 0\n"
        return ""
