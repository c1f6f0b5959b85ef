"""What is injected into a model: the operations that its platform computes faster, and on a mesh an attention kernel and sharding constraints."""

from models.layers.ops import Ops
from pretrain.distributed.attention_kernels import make_attend
from pretrain.distributed.ops.dropout import drop
from pretrain.distributed.ops.products import add_bias, multiply, multiply_activation
from pretrain.distributed.ops.recompute import recompute
from pretrain.distributed.ops.softmax import attend
from pretrain.distributed.sharding import constrain

OPS = Ops(
    linear=multiply,
    activation_linear=multiply_activation,
    add_bias=add_bias,
    recompute=recompute,
    drop=drop,
    attend=attend,
)


def make_local_hooks() -> dict[str, Ops]:
    """Return the hooks of a model that runs without a mesh, keyword arguments of `models.build`."""
    return {"ops": OPS}


def make_model_hooks(mesh, attention) -> dict[str, Ops]:
    """Return the hooks that fit a model to a mesh, keyword arguments of `models.build`.

    attention: a list that receives one line for each attention kernel that is chosen.
    """

    def note(kernel, reason):
        line = f"{kernel}: {reason}" if reason else kernel
        if line not in attention:
            attention.append(line)

    return {"ops": OPS._replace(attend=make_attend(mesh, note), constrain=constrain(mesh))}
