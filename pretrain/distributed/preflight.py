"""Before anything is compiled on many hosts: do they agree on what they are about to do?

Each process tells what it has through the coordinator's key-value store, which needs neither collectives nor equal numbers of devices.
Whoever reads everything sees the same, so all processes raise the same error, within WAIT seconds even if one never speaks.
"""

import hashlib
import json
import os
import pathlib
import socket
import time

import jax
from etils import epath

from data.corpus.paths import is_remote
from data.store.salvage import told
from pretrain.config import to_json
from pretrain.distributed import processes
from pretrain.distributed.accelerators import describe_unused, find_accelerators
from pretrain.overrides import ConfigError

WAIT = 25  # seconds for the slowest process to speak; they have just come together
COPY = 3600  # the same where each host first copies the token store from a bucket, or reads it whole; one that died meanwhile is JAX's to notice
ROOT = pathlib.Path(__file__).resolve().parents[2]


def preflight_accelerators() -> None:
    """Raise ConfigError, the same in every process, where one would train on the CPU of a machine that has a TPU or a GPU.

    JAX takes the CPU with no more than a warning where the library of an accelerator is not installed. JAX_PLATFORMS=cpu asks for it.
    """
    unused = describe_unused(find_accelerators(), jax.default_backend())
    if jax.process_count() > 1 and processes.client() is not None:
        hosts = exchange("accelerators", {"host": _host(), "unused": unused}, WAIT)
        unused = "; ".join(f"{one['host']}: {one['unused']}" for one in hosts if one["unused"])
    if unused:
        raise ConfigError(unused)


def preflight(run, workdir):
    """Raise ConfigError, the same in every process, where they differ; alone, do nothing.

    Differences are told by host: configuration, code, versions, devices, newest checkpoint, and whether all of them can write to one
    workdir and see there what the others wrote.
    """
    if jax.process_count() == 1:
        return
    if processes.client() is None:  # the TPU's runtime knows its neighbours without being told
        raise ConfigError(
            f"{jax.process_count()} processes share these devices, but nothing joined them: on Cloud TPU set CLOZE_CLUSTER=tpu"
        )
    note = _write_note(workdir)
    said = exchange("facts", facts(run, newest_step(workdir)) | {"note": note}, WAIT)
    # What is not seen differs from host to host, so all complaints are exchanged; afterwards nobody looks for notes any more.
    complaints = differences(said) + [
        line for lines in exchange("seen", _unseen(workdir, said), WAIT) for line in lines
    ]
    if note:
        (epath.Path(workdir) / note).unlink(missing_ok=True)
    _refuse(complaints)


def preflight_source(run, source):
    """The same for the opened source: what its numbers mean and what it holds, and then each byte of it, which is read once on a machine.

    Returns the source, or what is left of it where `run` leaves damaged documents out: the same for all.
    Raises ConfigError where hosts differ or a copy is damaged, or ValueError where the only one is.
    """
    if jax.process_count() == 1:
        return source.verified(run.data.on_corrupt)
    _refuse(
        differences(
            exchange("source", source_facts(source), COPY if is_remote(run.data.store) else WAIT)
        )
    )
    damage = None
    try:
        source = source.verified(run.data.on_corrupt)
    except (ValueError, OSError) as error:
        damage = str(error)
    said = exchange("sound", {"host": _host(), "damage": damage, "left out": told(source)}, COPY)
    if damaged := [f"{one['host']}: {one['damage']}" for one in said if one["damage"]]:
        raise ConfigError("; ".join(damaged))
    _refuse(differences(said))
    return source


def _refuse(complaints):
    if complaints:
        raise ConfigError(
            "the hosts of this run do not agree: " + "; ".join(dict.fromkeys(complaints))
        )


def facts(run, step):
    """What this process is about to do, as {name: text or number}: equal in all processes but for `host`."""
    return {
        "host": _host(),
        "configuration": _digest(to_json(run).encode()),
        "code": code_version(),
        "jax": jax.__version__,
        "local devices": jax.local_device_count(),
        "step": step,
    }


def source_facts(source):
    """What this process is about to read, in the same form."""
    return {
        "host": _host(),
        "encoding": source.encoding.fingerprint,
        "data": source.fingerprint,
    }


def newest_step(workdir):
    """The newest checkpoint that this process sees in a workdir, by its folder's name; None where there is none."""
    folder = epath.Path(workdir) / "checkpoints"
    steps = (
        [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        if folder.exists()
        else []
    )
    return max(steps, default=None)


def code_version():
    """A digest of the program's own files."""
    digest = hashlib.sha256()
    for folder in ("data", "models", "pretrain"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def differences(said):
    """What the processes do not have in common, a sentence each: the odd ones out against what most of them say."""
    sentences = []
    for name in said[0].keys() - {"host", "note"}:
        values = [one[name] for one in said]
        usual = max(values, key=lambda value: (values.count(value), -values.index(value)))
        odd = [f"{one['host']} has {name} {one[name]}" for one in said if one[name] != usual]
        if odd:
            sentences.append(
                f"{', '.join(odd)}, {values.count(usual)} of {len(values)} have {usual}"
            )
    return sorted(sentences)


def _write_note(workdir):
    """A small file in the workdir that the others must see; its name, or None where it cannot be written."""
    name = f".preflight-{jax.process_index()}-{os.getpid()}-{time.time_ns()}"
    try:
        folder = epath.Path(workdir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    except OSError:
        return None  # told by everybody in `_unseen`
    return name


def _unseen(workdir, said):
    """A sentence for each process that cannot write to the workdir, or whose note is not seen here."""
    sentences = []
    for one in said:
        if one["note"] is None:
            sentences.append(f"{one['host']} cannot write to {workdir}")
        elif not (epath.Path(workdir) / one["note"]).exists():
            sentences.append(
                f"{workdir} is another folder on {one['host']} than on {socket.gethostname()}: it must be shared, for example gs://"
            )
    return sentences


def exchange(name, mine, wait):
    """What every process has to say under a name, in their order. Raises ConfigError that names those silent for `wait` seconds."""
    publish(name, mine, wait)
    return collect(name, wait)


def publish(name, mine, wait):
    """Let the other processes read a JSON-like value under a name. Raises ConfigError where the coordinator does not answer."""
    try:
        processes.within(
            WAIT,
            processes.client().key_value_set,
            f"cloze/preflight/{name}/{jax.process_index()}",
            json.dumps(mine),
        )
    except TimeoutError as error:
        raise ConfigError(f"process 0, the coordinator, {_late(wait)}") from error


def collect(name, wait):
    """The values that all processes published under a name, in their order. Raises ConfigError that names those silent for `wait` seconds."""
    client, end, values, silent = processes.client(), time.monotonic() + wait, [], {}
    for index in range(jax.process_count()):
        left = max(int((end - time.monotonic()) * 1000), 100)
        try:
            values.append(
                json.loads(client.blocking_key_value_get(f"cloze/preflight/{name}/{index}", left))
            )
        except jax.errors.JaxRuntimeError:
            silent[index] = f"{index} ({processes.host_of(index) or 'host unknown'})"
    if (
        jax.process_index() in silent
    ):  # which has published: it is the coordinator that does not answer any more
        raise ConfigError(f"process 0, the coordinator, {_late(wait)}")
    if silent:
        raise ConfigError(f"process {', '.join(silent.values())} {_late(wait)}")
    return values


def _late(wait):
    return (
        f"of {jax.process_count()} has not come as far as the others within {wait} s; see its log"
    )


def _host():
    return f"{socket.gethostname()} (process {jax.process_index()})"


def _digest(raw):
    return hashlib.sha256(raw).hexdigest()[:16]
