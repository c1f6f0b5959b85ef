"""A batch script of Slurm, which requeues itself when it is cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pretrain.pod.manifests.manifest_request import ManifestRequest
from pretrain.pod.manifests.shell_text import join_words, quote_word

TIME = re.compile(r"\d+|(\d+-)?\d{1,2}(:\d{2}){0,2}|\d+:\d{2}(:\d{2})?")

SCRIPT = """\
{choice}status=0
srun{srun} {command} || status=$?
case "$status" in
  143) again=yes ;; # SIGTERM: the time limit is near, or the job is preempted
  2 | 75 | 134 | 137 | 139) # a path that cannot be read or written, a hang, another signal
    again=no
    if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {max_restarts} ]; then again=yes; fi
    ;;
  *) again=no ;;
esac
if [ "$again" = yes ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
"""


def build_slurm(request: ManifestRequest) -> str:
    """Return the script.

    Raises:
      ValueError: if a number or the time limit is out of range.
    """
    if not TIME.fullmatch(request.time):
        raise ValueError(f"--time {request.time!r}: expected HOURS:MINUTES:SECONDS or DAYS-HOURS")
    directives = {
        "job-name": request.name,
        "nodes": request.nodes,
        "ntasks-per-node": request.tasks,
        "gpus-per-node": request.gpus or None,
        "time": request.time,
        "signal": f"TERM@{request.grace}",
        "open-mode": "append",  # a requeued job continues its log
        "array": f"0-{len(request.members) - 1}" if request.members else None,
    }
    lines = ["#!/usr/bin/env bash"]
    lines += [f"#SBATCH --{name}={value}" for name, value in directives.items() if value]
    lines += ["#SBATCH --requeue", *(f"#SBATCH {_quote_flag(flag)}" for flag in request.flags)]
    env = request.build_env(
        CLOZE_CLUSTER="slurm",
        JAX_PLATFORMS="cuda,cpu" if request.gpus else "cpu",
        NO_GCE_CHECK="false" if (request.workdir or "").startswith("gs://") else "true",
    )
    lines += [f"export {name}={quote_word(value)}" for name, value in env.items()]
    # srun does not take the number of CPUs over from sbatch.
    cpus = [flag for flag in request.flags if re.match("--cpus-per-task=|-c", flag)]
    command = join_words([*request.program, *request.argv])
    if request.members:
        command = join_words(request.program) + ' "$@"'
    return (
        "\n".join(lines)
        + "\n"
        + SCRIPT.format(
            srun="".join(f" {quote_word(flag)}" for flag in cpus),
            choice=choose_member(request.members),
            command=command,
            max_restarts=request.max_restarts,
        )
    )


def choose_member(members: Sequence[Sequence[str]]) -> str:
    """Return the lines in which a task of the array takes its command; "" for one run."""
    if not members:
        return ""
    cases = [f"  {index}) set -- {join_words(words)} ;;\n" for index, words in enumerate(members)]
    return f'case "$SLURM_ARRAY_TASK_ID" in\n{"".join(cases)}esac\n'


def _quote_flag(flag: str) -> str:
    """Return a flag as sbatch reads it in a script: a value after = is in quotes if it needs any.

    A flag without =, such as -p gpu, or whose value is in quotes, is left as it is.
    """
    name, sign, value = flag.partition("=")
    return flag if not value or value[0] in "\"'" else f"{name}{sign}{quote_word(value)}"
