"""A JobSet of Kubernetes: one job per TPU slice, one pod per host, for GKE."""

from __future__ import annotations

import dataclasses
from typing import Any

from pretrain.pod.manifests.manifest_request import ManifestRequest
from pretrain.pod.manifests.yaml_text import format_yaml
from pretrain.pod.tpu_types import GENERATIONS, TpuSlice, parse_type

MAX_NAME = 63  # of a pod, which is its host's name
SUFFIX = 6  # characters that a job adds to the name of its pod


def parse_gke_type(request: ManifestRequest) -> TpuSlice:
    """Return the slice of a request.

    Raises:
      ValueError: if it has none, or one that is not on GKE.
    """
    tpu = parse_type(request.require_value("type", "--type v5p-32"), request.topology)
    if not GENERATIONS[tpu.generation].gke_accelerator:
        raise ValueError(f"--type {tpu.type}: no manifest is known for {tpu.generation} on GKE")
    return tpu


def cluster_name(request: ManifestRequest, tpu: TpuSlice) -> str:
    """Return CLOZE_CLUSTER of the run: one host has no neighbours that GKE would name."""
    return "gke" if tpu.num_hosts * request.slices > 1 else "none"


def escape_dollars(text: str) -> str:
    """Return a text that Kubernetes, which replaces $(NAME), reads as it is."""
    return text.replace("$", "$$")


def build_jobset(request: ManifestRequest) -> str:
    """Return the manifest: one JobSet, or one for each member of a sweep.

    Raises:
      ValueError: if the request lacks something, or its name is too long.
    """
    runs = [
        dataclasses.replace(request, name=f"{request.name}-{index}", argv=argv, members=())
        for index, argv in enumerate(request.members)
    ]
    return "---\n".join(map(build_run, runs or [request]))


def build_run(request: ManifestRequest) -> str:
    """Return the manifest of one run. Raises as `build_jobset`."""
    tpu = parse_gke_type(request)
    longest = f"{request.name}-slice-{request.slices - 1}-{tpu.num_hosts - 1}"
    if len(longest) + SUFFIX > MAX_NAME:
        raise ValueError(
            f"--name {request.name}: a pod would be named {longest}-xxxxx, and a name has at most "
            f"{MAX_NAME} characters"
        )
    spot = {"cloud.google.com/gke-spot": "true"} if request.spot else {}
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": request.account,
        "terminationGracePeriodSeconds": request.grace,
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": GENERATIONS[tpu.generation].gke_accelerator,
            "cloud.google.com/gke-tpu-topology": tpu.topology,
            **spot,
        },
        **({"tolerations": [make_toleration(*item) for item in spot.items()]} if spot else {}),
        "containers": [make_container(request, tpu)],
    }
    job = {
        "parallelism": tpu.num_hosts,
        "completions": tpu.num_hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return format_yaml(make_jobset(request, job)) + "\n"


def make_jobset(request: ManifestRequest, job: dict[str, Any]) -> dict[str, Any]:
    """Return the JobSet of a job per slice.

    A host that is lost or ends with any status but 0 restarts all of them: status 2 also means
    hosts that did not join in time and of a bucket that did not answer.
    """
    # Two generations of pods at once would dispute the workdir.
    failure_policy = {"maxRestarts": request.max_restarts, "restartStrategy": "BlockingRecreate"}
    slices = {"name": "slice", "replicas": request.slices, "template": {"spec": job}}
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": request.name, "annotations": exclusive},
        "spec": {"failurePolicy": failure_policy, "replicatedJobs": [slices]},
    }


def make_container(request: ManifestRequest, tpu: TpuSlice) -> dict[str, Any]:
    """Return the container of a host. The image's entry point takes the verb."""
    env = request.build_env(CLOZE_CLUSTER=cluster_name(request, tpu))
    return {
        "name": "train",
        "image": request.require_image(),
        "args": [escape_dollars(word) for word in request.argv],
        "env": [{"name": name, "value": escape_dollars(text)} for name, text in env.items()],
        "resources": {"limits": {"google.com/tpu": str(tpu.chips_per_host)}},
    }


def make_toleration(label: str, value: str) -> dict[str, str]:
    """Return the toleration of the taint that GKE gives to nodes with a label."""
    return {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}
