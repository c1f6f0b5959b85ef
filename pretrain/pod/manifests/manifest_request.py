"""What a manifest is made from, and the checks that all its forms share."""

from __future__ import annotations

import dataclasses
import itertools
import re

from pretrain.host.command import PREFIX
from pretrain.pod.environment import build_environment, parse_variables

IMAGE = re.compile(
    r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)

# Names of variables whose values no manifest has.
SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.I)
SECRET_REMEDY = (
    "let the scheduler pass it: a Secret of Kubernetes, `export` before sbatch, `sky jobs launch "
    "--env NAME`"
)
# The command of a checkout, and of an installed wheel, which has no .venv.
PROGRAM = "cloze" if PREFIX else ".venv/bin/cloze"


@dataclasses.dataclass(frozen=True)
class ManifestRequest:
    """A run and the machines for it.

    Attributes:
      name: of the job, an RFC 1123 label.
      argv: the verb and its arguments.
      members: of a sweep, the verb and the arguments that train each member; () for one run.
      workdir: --workdir of the verb, if it has one; of a sweep its folder.
      variables: NAME=VALUE of each further environment variable.
      type: accelerator type, such as "v5p-32"; of SkyPilot also a GPU, such as "H100:8".
      topology: chips along each side of a slice; None for the type's.
      slices: number of slices.
      spot: whether the machines are preemptible.
      cluster, zone, project: where XPK and SkyPilot start it.
      account: Kubernetes service account that may write to the bucket.
      nodes, tasks, gpus: number of nodes, of tasks of each node, of GPUs of each node.
      grace: seconds between SIGTERM and SIGKILL, in which the run saves a checkpoint.
      max_restarts: number of restarts, preemptions included where the scheduler counts them.
    """

    name: str
    argv: tuple[str, ...]
    members: tuple[tuple[str, ...], ...] = ()
    workdir: str | None = None
    variables: tuple[str, ...] = ()
    type: str | None = None
    topology: str | None = None
    slices: int = 1
    spot: bool = False
    image: str | None = None
    cluster: str | None = None
    zone: str | None = None
    project: str | None = None
    account: str = "cloze"
    nodes: int = 1
    tasks: int = 1
    gpus: int = 8
    time: str = "24:00:00"
    program: tuple[str, ...] = (PROGRAM,)
    grace: int = 120
    max_restarts: int = 20
    flags: tuple[str, ...] = ()

    def build_env(self, **defaults: str) -> dict[str, str]:
        """Return the environment of the run: the table of `pod`, `defaults`, then `variables`."""
        rows = [f"{name}={value}" for name, value in defaults.items()]
        return build_environment(self.workdir, [*rows, *self.variables])

    def require_value(self, field: str, example: str) -> str:
        """Return a field that a form cannot do without.

        Raises:
          ValueError: if it is not given.
        """
        value = getattr(self, field)
        if not value:
            raise ValueError(f"pod manifest needs --{field} for this form, e.g. {example}")
        return value

    def require_image(self) -> str:
        """Return the image.

        Raises:
          ValueError: if it is not given, or is not the name of an image.
        """
        image = self.require_value("image", "us-east5-docker.pkg.dev/PROJECT/cloze/cloze:tpu")
        if not IMAGE.fullmatch(image):
            raise ValueError(
                f"--image {image!r} is not the name of an image, such as "
                "us-east5-docker.pkg.dev/my-project/cloze/cloze:tpu"
            )
        return image


def check_texts(request: ManifestRequest) -> None:
    """Raise ValueError if a value cannot be written to any file."""
    words = itertools.chain(request.argv, *request.members)
    values = [*words, *request.flags, *request.program]
    shown = {value: repr(value) for value in values}
    for name, value in parse_variables(request.variables).items():
        shown[value] = f"--env {name}=..."
        if SECRET.search(name) and value:
            raise ValueError(
                f"--env {name}=...: a manifest is a file that others read, and this looks like a "
                f"secret; leave it out, and {SECRET_REMEDY}"
            )
    for value, place in shown.items():
        if value != value.encode(errors="replace").decode():
            raise ValueError(f"{place} is not text: it has bytes that are not UTF-8")
    if not request.program:
        raise ValueError("--program: give the words that precede the verb, or leave out the flag")
    for flag in request.flags:
        if not re.fullmatch(r"-[^\x00-\x1f\x7f]+", flag):
            raise ValueError(f"--create-flag {flag!r}: expected a flag, in one line")
