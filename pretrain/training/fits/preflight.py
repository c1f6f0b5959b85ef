"""Check before anything is compiled that all hosts of a run agree on what they are about to do.

Each process publishes its facts in the coordinator's key-value store, which needs neither
collectives nor equal numbers of devices. All processes read the same facts, so all raise the same
error, within TIMEOUT seconds even if one of them publishes nothing.
"""

from __future__ import annotations

import collections
import hashlib
import os
import pathlib
import socket
import time
from collections.abc import Sequence
from typing import Any

import jax

from data.corpus.paths import is_remote
from data.source import Source, describe_omissions
from pretrain.config import Run
from pretrain.processes import processes
from pretrain.processes.accelerator_detection import describe_unused, find_accelerators
from pretrain.processes.exchange import COPY_TIMEOUT, TIMEOUT, describe_host, exchange_values
from pretrain.processes.fact_comparison import Facts, find_differences, flatten_tree
from pretrain.settings.overrides import ConfigError, to_plain
from pretrain.workdir.workdir import Workdir

ROOT, PACKAGES = pathlib.Path(__file__).resolve().parents[3], ("data", "models", "pretrain")


def preflight_accelerators() -> None:
    """Raise ConfigError in every process if one would train on the CPU despite a TPU or a GPU.

    Without the library of an accelerator JAX uses the CPU with no more than a warning.
    JAX_PLATFORMS=cpu requests the CPU.
    """
    unused = describe_unused(find_accelerators(), jax.default_backend())
    if jax.process_count() > 1 and processes.get_client() is not None:
        reports = exchange_values(
            "accelerators", {"host": describe_host(), "unused": unused}, TIMEOUT
        )
        unused = "; ".join(
            f"{host['host']}: {host['unused']}" for host in reports if host["unused"]
        )
    if unused:
        raise ConfigError(unused)


def preflight_run(run: Run, workdir: Workdir) -> None:
    """Raise the same ConfigError in every process if the processes differ.

    A single process does nothing. Several are compared by configuration, code, versions, devices
    and newest checkpoint, and by whether all of them can write to one workdir and see the files of
    the others there. The error names the differing hosts.
    """
    if jax.process_count() == 1:
        return
    if processes.get_client() is None:  # A TPU's runtime finds the other processes without joining.
        raise ConfigError(
            f"{jax.process_count()} processes share these devices, but nothing joined them: on "
            "Cloud TPU set CLOZE_CLUSTER=tpu"
        )
    probe = _write_probe(workdir)
    facts_by_process = exchange_values(
        "facts",
        collect_run_facts(run, max(workdir.list_steps(), default=None)) | {"probe": probe},
        TIMEOUT,
    )
    # The probes that cannot be seen differ between hosts, so all complaints are exchanged. After
    # that, no process looks for probes any more.
    complaints = find_differences(facts_by_process) + [
        line
        for lines in exchange_values(
            "seen", _find_unseen_probes(workdir, facts_by_process), TIMEOUT
        )
        for line in lines
    ]
    if probe:
        (workdir / probe).unlink(missing_ok=True)
    _raise_complaints(complaints)


def preflight_source(run: Run, source: Source) -> Source:
    """Check that all hosts opened the same source, and verify its bytes once per machine.

    Returns:
      The source, without damaged documents if `run` skips them; the same in all processes.

    Raises:
      ConfigError: hosts differ, or the copy of a host is damaged.
      ValueError: the source of a single process is damaged.
    """
    if jax.process_count() == 1:
        return source.verify_or_salvage(run.data.on_corrupt)
    timeout = COPY_TIMEOUT if is_remote(run.data.store) else TIMEOUT
    _raise_complaints(
        find_differences(exchange_values("source", collect_source_facts(source), timeout))
    )
    damage = None
    try:
        source = source.verify_or_salvage(run.data.on_corrupt)
    except (ValueError, OSError) as error:
        damage = str(error)
    own_facts = {"host": describe_host(), "damage": damage, "left out": describe_omissions(source)}
    facts_by_process = exchange_values("sound", own_facts, COPY_TIMEOUT)
    if damages := [
        f"{facts['host']}: {facts['damage']}" for facts in facts_by_process if facts["damage"]
    ]:
        raise ConfigError("; ".join(damages))
    _raise_complaints(find_differences(facts_by_process))
    return source


def _raise_complaints(complaints: Sequence[str]) -> None:
    if complaints:
        raise ConfigError(
            "the hosts of this run do not agree: " + "; ".join(dict.fromkeys(complaints))
        )


def collect_run_facts(run: Run, step: int | None) -> Facts:
    """Return {name: value} on this process, equal in all processes except for `host`.

    A value is a text or a number, or {key: text or number} whose keys are compared one by one.
    """
    return {
        "host": describe_host(),
        "configuration": flatten_tree(to_plain(run)),
        "code": compute_code_versions(),
        "jax": jax.__version__,
        "local devices": jax.local_device_count(),
        "step": step,
    }


def collect_source_facts(source: Source) -> Facts:
    """Return facts as `collect_run_facts` on the source; of a token store, also its files."""
    manifest = getattr(source, "manifest", {})
    described = {key: manifest[key] for key in ("splits", "sources", "files") if key in manifest}
    return {
        "host": describe_host(),
        "encoding": source.encoding.fingerprint,
        "data": flatten_tree(described) | {"fingerprint": source.fingerprint},
    }


def compute_code_versions() -> dict[str, str]:
    """Return {folder: digest of the files in it} of the program."""
    digests: dict[str, Any] = collections.defaultdict(hashlib.sha256)
    for path in sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")):
        name = str(path.parent.relative_to(ROOT))
        digests[name].update(f"{path.name}\0".encode() + path.read_bytes())
    return {name: digest.hexdigest()[:16] for name, digest in digests.items()}


def _write_probe(workdir: Workdir) -> str | None:
    """Write a small file that the other processes must see; return its name, or None on failure."""
    name = f".preflight-{jax.process_index()}-{os.getpid()}-{time.time_ns()}"
    try:
        workdir.path.mkdir(parents=True, exist_ok=True)
        (workdir / name).write_text(name)
    except OSError:
        return None  # `_find_unseen_probes` reports it in every process.
    return name


def _find_unseen_probes(workdir: Workdir, facts_by_process: Sequence[Facts]) -> list[str]:
    """Return a sentence for each process whose probe in the workdir is missing or not visible."""
    sentences = []
    for process in facts_by_process:
        if process["probe"] is None:
            sentences.append(f"{process['host']} cannot write to {workdir}")
        elif not (workdir / process["probe"]).exists():
            sentences.append(
                f"{workdir} is another folder on {process['host']} than on "
                f"{socket.gethostname()}: it must be shared, for example gs://"
            )
    return sentences
