"""The operations that training injects into a model.

They are faster versions of the layers' operations, and on a mesh an attention kernel and sharding
constraints.
"""

import jax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import Mesh

from data.members import call_later
from models.layers.ops import Ops
from pretrain.kernels.attention.choice import AttentionRules, has_kernels, make_attend
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.hash_dropout import (
    drop_by_hash,
    drop_on_shard,
    keep_rows_on_shard,
)
from pretrain.kernels.matmul import (
    activation_matmul,
    add_bias,
    matmul,
    matmul_on_gpu,
)
from pretrain.kernels.rematerialization import recompute_in_backward
from pretrain.mesh.sharding import make_constraint

# What only accelerators and reversible stacks need.
recall_rules = call_later("pretrain.kernels.trials.kernel_trust:recall_rules")
make_take_rows = call_later("pretrain.kernels.gathers:make_take_rows")
take_positions = call_later("pretrain.kernels.gathers:take_positions")
pad_columns = call_later("pretrain.kernels.alignment:pad_columns")
apply_reversible = call_later("pretrain.kernels.inversion:apply_reversible")
# pyright cannot infer the result of a `jax.custom_vjp` with nondiff_argnums.
OPS = Ops(
    linear=matmul,  # pyright: ignore[reportArgumentType]
    activation_linear=activation_matmul,  # pyright: ignore[reportArgumentType]
    add_bias=add_bias,
    recompute=recompute_in_backward,
    drop=drop_by_hash,  # pyright: ignore[reportArgumentType]
    attend=attend,
    apply_reversible=apply_reversible,
)


def make_local_hooks() -> dict[str, Ops]:
    """Return keyword arguments of `models.build` for a model that runs without a mesh."""
    return {"ops": OPS}


def make_model_hooks(
    mesh: Mesh,
    attention: list[str],
    on_shard: bool = False,
    rules: AttentionRules | None = None,
    has_gathers: bool = True,
) -> dict[str, Ops]:
    """Return keyword arguments of `models.build` for a model that runs on a mesh.

    Args:
      attention: a list to which one line is appended for each attention kernel that is chosen.
      on_shard: for a model that runs inside `jax.shard_map` over `fsdp` and `data`, on the rows of
        one device. It draws what the whole batch would for them.
      rules: which kernels may compute attention; None: those that earlier comparisons with the
        plain equations trust with the same shapes.
      has_gathers: whether a GPU gathers by `gathers`.
    """

    def record_kernel(kernel: str, reason: str | None) -> None:
        line = f"{kernel}: {reason}" if reason else kernel
        if line not in attention:
            attention.append(line)

    own_rules: AttentionRules = recall_rules(mesh) if has_kernels(mesh) else AttentionRules()
    ops = OPS._replace(attend=make_attend(mesh, record_kernel, on_shard, rules or own_rules))
    if on_shard:
        ops = ops._replace(drop=drop_on_shard, keep_rows=keep_rows_on_shard)
    else:
        ops = ops._replace(constrain=make_constraint(mesh))
    if mesh.devices.flat[0].platform == "gpu":
        constrain = ops.constrain
        ops = ops._replace(
            constrain=lambda x_BLD: constrain(keep_features_minor(x_BLD)),
            linear=matmul_on_gpu,  # pyright: ignore[reportArgumentType]
        )
        if has_gathers:
            ops = ops._replace(take_rows=make_take_rows(mesh), take_positions=take_positions)
        if mesh.shape["model"] == 1:  # The axis `model` shards the columns.
            ops = ops._replace(linear=pad_columns(ops.linear))
    return {"ops": ops}


def keep_features_minor(x_BLD: jax.Array) -> jax.Array:
    """Return x, with the features of a position next to each other in memory.

    Without it, XLA's GPU compiler puts the rows of a batch next to each other in GPT-2 with
    unrolled layers, and transposes the input of each matmul.
    """
    return with_layout_constraint(x_BLD, Layout(tuple(range(x_BLD.ndim))))
