"""Files for other schedulers than `gcloud`: one module for each form."""

from pretrain.pod.manifests.jobset import build_jobset
from pretrain.pod.manifests.skypilot import build_skypilot
from pretrain.pod.manifests.slurm import build_slurm
from pretrain.pod.manifests.xpk import build_xpk

# What `pod manifest --for FORM` makes.
FORMS = {"jobset": build_jobset, "xpk": build_xpk, "slurm": build_slurm, "skypilot": build_skypilot}
