"""A task of SkyPilot on Google Cloud: a TPU slice, or nodes with GPUs."""

from __future__ import annotations

import re
from typing import Any

from pretrain.pod.manifests.manifest_request import ManifestRequest
from pretrain.pod.manifests.shell_text import join_words
from pretrain.pod.manifests.yaml_text import format_yaml
from pretrain.pod.tpu_types import GENERATIONS, parse_type

GPU = re.compile(r"[A-Z][A-Za-z0-9-]*(:[1-9][0-9]?)?")
PORT = 61440  # of the coordinator
# Statuses of `train` after which the job is recovered without a limit, as after a preemption: a
# hang, a signal. Others are restarted `max_restarts` times.
RECOVER_STATUSES = [75, 134, 137, 139]
SETUP = """\
command -v uv >/dev/null || python3 -m pip install --user uv
export PATH="$HOME/.local/bin:$PATH"
uv venv --allow-existing --seed --python 3.11 .venv
.venv/bin/python -m pip install -c constraints.txt -e '.[{extra},tfdata]'
"""


def build_skypilot(request: ManifestRequest) -> str:
    """Return the task.

    Raises:
      ValueError: if the type is neither a TPU nor a GPU, or there are several slices.
    """
    zone = request.require_value("zone", "--zone us-east5-a")
    if not re.fullmatch("[a-z]+-[a-z0-9]+-[a-z]", zone):
        raise ValueError(f"--zone {zone}: expected a zone of Google Cloud, such as us-east5-a")
    type_name = request.require_value("type", "--type v5p-32, or --type H100:8")
    resources: dict[str, Any] = {"infra": f"gcp/{zone.rpartition('-')[0]}/{zone}"}
    if GPU.fullmatch(type_name):
        resources["accelerators"] = type_name
        cluster, extra, platforms = "none", "cuda", "cuda,cpu"
    else:
        tpu = parse_type(type_name, request.topology)
        runtime = GENERATIONS[tpu.generation].runtime
        if request.slices > 1 or request.nodes > 1 or not runtime or request.topology:
            raise ValueError(
                f"--type {type_name} --slices {request.slices} --nodes {request.nodes}: SkyPilot "
                "requests one slice of v2 to v6e, with the topology of its type"
            )
        resources["accelerators"] = f"tpu-{tpu.type}"
        resources["accelerator_args"] = {"runtime_version": runtime}
        cluster, extra, platforms = "tpu", "tpu", "tpu,cpu"
    resources["use_spot"] = request.spot
    resources["job_recovery"] = {
        "max_restarts_on_errors": request.max_restarts,
        "recover_on_exit_codes": RECOVER_STATUSES,
    }
    command = join_words([*request.program, *request.argv])
    if request.nodes > 1:
        command += describe_processes()
    task = {
        "name": request.name,
        "workdir": ".",
        "num_nodes": request.nodes,
        "resources": resources,
        "envs": request.build_env(CLOZE_CLUSTER=cluster, JAX_PLATFORMS=platforms),
        "setup": SETUP.format(extra=extra),
        "run": f"set -e\n{command}\n",
    }
    return format_yaml(task) + "\n"


def describe_processes() -> str:
    """Return the flags, in bash, that describe the nodes of a task by SkyPilot's variables."""
    return (
        f' --coordinator "$(head -n 1 <<< "$SKYPILOT_NODE_IPS"):{PORT}"'
        ' --processes "$SKYPILOT_NUM_NODES" --process "$SKYPILOT_NODE_RANK"'
    )
