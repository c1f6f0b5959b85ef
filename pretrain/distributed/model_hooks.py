"""What the mesh injects into a model: sharding constraints and an attention kernel."""

from pretrain.distributed.attention_kernels import make_attend
from pretrain.distributed.sharding import constrain


def make_model_hooks(mesh, attention):
    """Return the hooks that fit a model to a mesh, keyword arguments of `models.build`.

    attention: a list that receives one line for each attention kernel that is chosen.
    """

    def note(kernel, reason):
        line = f"{kernel}: {reason}" if reason else kernel
        if line not in attention:
            attention.append(line)

    return {"constrain": constrain(mesh), "attend": make_attend(mesh, note)}
