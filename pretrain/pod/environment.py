"""Environment variables of a training on a TPU worker: one table, with a reason for each row.

Variables that neither documentation nor our measurements support are absent: LIBTPU_INIT_ARGS (no
flag was measured), GLIBC_TUNABLES (launch.sh sets it for training on a CPU, whose buffers are
malloc's; one arena for the hundred threads of a TPU host was never tried), TF_CPP_MIN_LOG_LEVEL
(the program sets it itself). `--env NAME=VALUE` adds to the table or replaces a row.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable, Mapping

START = secrets.token_hex(4)  # names the starts of this process on the workers
# name -> (value, reason). {workdir} is the --workdir of the run; without one, the rows that
# contain it are omitted.
ENVIRONMENT = {
    "CLOZE_CLUSTER": (
        "tpu",
        "over ssh a worker's shell has no TPU_WORKER_HOSTNAMES: JAX must ask the metadata server "
        "for the addresses of the other workers",
    ),
    "JAX_COMPILATION_CACHE_DIR": (
        "{workdir}/compiled",
        "a preempted pod loses its disks; in the bucket the compiled step survives. JAX trusts the "
        "files that it finds there, so only the owner may write to it (JAX's documentation of the "
        "persistent compilation cache)",
    ),
    "JAX_PLATFORMS": (
        "tpu,cpu",
        "a TPU that cannot be opened is an error at once; unset, JAX continues on the CPU (seen "
        "with JAX 0.10 on a host without TPU)",
    ),
    "NO_GCE_CHECK": (
        "false",
        "`python -m pretrain` sets true, which avoids a wait on machines elsewhere; here "
        "TensorFlow's gs:// must ask the metadata server for the worker's credentials "
        "(tsl/platform/cloud/google_auth_provider.cc)",
    ),
    "PYTHONFAULTHANDLER": ("1", "a crash inside a library leaves the Python stacks in the log"),
    "PYTHONUNBUFFERED": (
        "1",
        "the log is a file: without it lines arrive in blocks, and the last lines of a killed "
        "worker are lost",
    ),
}


def build_environment(workdir: str | None = None, extra: Iterable[str] = ()) -> dict[str, str]:
    """Return {name: value} of the environment of a run.

    Args:
      extra: NAME=VALUE items that override the table.

    Raises:
      ValueError: if an item of `extra` is not NAME=VALUE.
    """
    rows = {
        name: value
        for name, (value, _) in ENVIRONMENT.items()
        if workdir or "{workdir}" not in value
    }
    rows = {name: value.format(workdir=(workdir or "").rstrip("/")) for name, value in rows.items()}
    return dict(sorted((rows | parse_variables(extra)).items()))


def parse_variables(items: Iterable[str]) -> dict[str, str]:
    """Return {name: value} of NAME=VALUE items.

    Raises ValueError for anything else. The message has no value, which may be a secret.
    """
    rows = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--env ({len(item)} characters without =): expected NAME=VALUE")
        if not (name.isidentifier() and name.isascii()):
            raise ValueError(f"--env {name!r}=...: expected NAME=VALUE")
        rows[name] = value
    return rows


def hide_values(text: str, private: Mapping[str, str]) -> str:
    """Return a text in which the values of --env are replaced by $NAME, but for the shortest.

    A value of one or two characters, such as 1, is no secret, and occurs in any text.
    """
    for name, value in sorted(private.items(), key=lambda item: -len(item[1])):
        for shown in {value, shlex.quote(value), repr(value)[1:-1]}:
            if len(shown) > 2:
                text = text.replace(shown, f"${name}")
    return text


def format_exports(variables: Mapping[str, str]) -> str:
    """Return a script of bash that sets environment variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def name_start(variables: Mapping[str, str], tree: str) -> dict[str, str]:
    """Return the environment of `worker.sh start`, which takes its own two variables out again.

    Args:
      tree: the pushed tree that a worker must have.
    """
    return {**variables, "CLOZE_START": START, "CLOZE_TREE": tree}
