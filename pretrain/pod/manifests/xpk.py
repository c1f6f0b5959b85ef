"""The command of XPK, which makes a JobSet of its own for a cluster that it has created."""

from __future__ import annotations

from pretrain.pod.manifests.jobset import cluster_name, escape_dollars, parse_gke_type
from pretrain.pod.manifests.manifest_request import ManifestRequest
from pretrain.pod.manifests.shell_text import join_words, quote_word

MAX_NAME = 40
# All other statuses of `train`, so that XPK, which restarts after 42 and 127 to 255, restarts it
# after each.
RESTART_STATUSES = "1,2,3,75"


def build_xpk(request: ManifestRequest) -> str:
    """Return the command, in lines.

    Raises:
      ValueError: if the request lacks something, or its name is too long.
    """
    tpu = parse_gke_type(request)
    if len(request.name) > MAX_NAME:
        raise ValueError(f"--name {request.name}: XPK takes at most {MAX_NAME} characters")
    env = request.build_env(CLOZE_CLUSTER=cluster_name(request, tpu))
    # XPK runs it in a subshell, which `exec` replaces, so that the run itself gets SIGTERM.
    variables = [f"{name}={value}" for name, value in env.items()]
    # XPK copies it into a line of YAML, which a line break would end.
    command = join_words(["exec", "env", *variables, "cloze", *request.argv], one_line=True)
    shape = f"{tpu.generation}-{tpu.topology}" if request.topology else tpu.type
    flags = {
        "workload": request.name,
        "cluster": request.require_value("cluster", "--cluster my-cluster"),
        "zone": request.require_value("zone", "--zone us-east5-a"),
        "project": request.project,
        "tpu-type": shape,
        "num-slices": request.slices,
        "docker-image": request.require_image(),
        "max-restarts": request.max_restarts,
        "restart-on-exit-codes": RESTART_STATUSES,
        "termination-grace-period-seconds": request.grace,
        # The result is in the arguments of a pod, in which Kubernetes replaces $(NAME).
        "command": escape_dollars(command),
    }
    words = [f"--{flag}={value}" for flag, value in flags.items() if value is not None]
    words += [*(["--spot"] if request.spot else []), *request.flags]
    return " \\\n  ".join(["xpk workload create", *map(quote_word, words)]) + "\n"
