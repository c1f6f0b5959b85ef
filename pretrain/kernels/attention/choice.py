"""The attention kernel of a mesh: Splash, whole rows or chunks on TPU, cuDNN on NVIDIA GPUs.

XLA computes what no kernel of the platform supports. The kernels never hold the scores of all pairs
of a batch. Splash and cuDNN cannot apply dropout to the weights in a way that a training step could
repeat; the other kernels drop the weights that XLA would drop. The reason against a kernel is
reported once. `train.attention` names one kernel, or the plain equations, instead of this order.

B batch   L length of queries   M length of keys   H heads   G key heads   K head width
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask, PairBias
from models.layers.ops import repeat_heads
from pretrain.kernels.attention.plain import attend, attend_in_parts, move_shared_dropout
from pretrain.mesh.sharding import AXES
from pretrain.settings import AttentionChoice
from pretrain.settings.overrides import ConfigError


class AttentionKernel(NamedTuple):
    """A kernel that may replace `attend`.

    Attributes:
      find_obstacle: (q, k, mask, bias, drop, mesh) -> why it cannot be used, or None.
      caps_scores: whether `attend` takes a `soft_cap`.
    """

    choice: AttentionChoice
    name: str
    find_obstacle: Callable[..., str | None]
    attend: Callable[..., jax.Array]
    caps_scores: bool = False


def _find_splash_obstacle(*arguments: Any) -> str | None:
    from pretrain.kernels.attention.splash.splash_attention import find_splash_obstacle

    return find_splash_obstacle(*arguments)


def _attend_with_splash(*arrays: jax.Array, **options: Any) -> jax.Array:
    from pretrain.kernels.attention.splash.splash_attention import attend_with_splash

    return attend_with_splash(*arrays, **options)


def _find_row_obstacle(*arguments: Any) -> str | None:
    from pretrain.kernels.attention.row.sharded import find_row_obstacle

    return find_row_obstacle(*arguments)


def _attend_with_rows(*arrays: jax.Array, **options: Any) -> jax.Array:
    from pretrain.kernels.attention.row.sharded import attend_with_rows

    return attend_with_rows(*arrays, **options)


def _find_chunk_obstacle(*arguments: Any) -> str | None:
    from pretrain.kernels.attention.chunk.chunk_shards import find_chunk_obstacle

    return find_chunk_obstacle(*arguments)


def _attend_with_chunks(*arrays: jax.Array, **options: Any) -> jax.Array:
    from pretrain.kernels.attention.chunk.chunk_shards import attend_with_chunks

    return attend_with_chunks(*arrays, **options)


def _find_cudnn_obstacle(*arguments: Any) -> str | None:
    from pretrain.kernels.attention.cudnn_attention import find_cudnn_obstacle

    return find_cudnn_obstacle(*arguments)


def _attend_with_cudnn(*arrays: jax.Array, **options: Any) -> jax.Array:
    from pretrain.kernels.attention.cudnn_attention import attend_with_cudnn

    return attend_with_cudnn(*arrays, **options)


# {platform: its kernels, the preferred one first}. A kernel is imported when it is first asked.
KERNELS = {
    "tpu": (
        AttentionKernel("splash", "Splash", _find_splash_obstacle, _attend_with_splash, True),
        AttentionKernel("row", "whole-row kernel", _find_row_obstacle, _attend_with_rows),
    ),
    "gpu": (AttentionKernel("cudnn", "cuDNN", _find_cudnn_obstacle, _attend_with_cudnn),),
}
# The same for a mask with chunks.
CHUNK_KERNELS = {
    "tpu": (AttentionKernel("chunk", "chunk kernel", _find_chunk_obstacle, _attend_with_chunks),),
}
PLATFORMS = {"cpu": "a CPU", "gpu": "a GPU", "tpu": "a TPU"}


class AttentionCall(NamedTuple):
    """The arguments of a call of `attend`, as arrays, tracers or shapes."""

    q_BLHK: Any
    k_BMHK: Any
    v_BMHK: Any
    mask: Any
    bias: Any
    scale: float | None
    drop: KeyedDropout | None
    soft_cap: float | None = None

    def list_options(self) -> dict[str, Any]:
        """Return the keyword arguments of a kernel; a kernel without a soft cap takes none."""
        options = dict(mask=self.mask, bias=self.bias, scale=self.scale, drop=self.drop)
        return options if self.soft_cap is None else options | {"soft_cap": self.soft_cap}


class AttentionRules(NamedTuple):
    """Which kernels may compute attention.

    Attributes:
      is_strict: whether a call that the chosen kernel cannot serve is an error; else the plain
        equations serve it.
      find_doubt: (kernel, call, mesh) -> why the kernel is not trusted with a call that it takes,
        as the end of a sentence that begins with its name; None if it is trusted.
    """

    choice: AttentionChoice = "auto"
    is_strict: bool = False
    find_doubt: Callable[[AttentionKernel, AttentionCall, Mesh], str | None] = lambda *_: None


AUTOMATIC = AttentionRules()


def list_kernels(platform: str, mask: Mask | jax.Array | None) -> tuple[AttentionKernel, ...]:
    """Return the kernels of a platform for a mask, the preferred one first."""
    if isinstance(mask, Mask) and mask.chunks is not None and platform in CHUNK_KERNELS:
        return CHUNK_KERNELS[platform]
    return KERNELS[platform]


def list_all_kernels(platform: str) -> list[AttentionKernel]:
    """Return the kernels of a platform for all masks."""
    return [kernel for table in (KERNELS, CHUNK_KERNELS) for kernel in table.get(platform, ())]


def find_platforms(choice: AttentionChoice) -> list[str]:
    """Return the platforms that have the kernel of a choice."""
    return [
        platform
        for tables in (KERNELS, CHUNK_KERNELS)
        for platform, kernels in tables.items()
        if any(kernel.choice == choice for kernel in kernels)
    ]


def check_platform(choice: AttentionChoice, platform: str) -> None:
    """Raise ConfigError for a kernel that a platform does not have."""
    if choice in ("auto", "plain") or platform in find_platforms(choice):
        return
    own = [kernel.choice for kernel in list_all_kernels(platform)]
    needed = " or ".join(PLATFORMS[name] for name in find_platforms(choice))
    raise ConfigError(
        f"train.attention={choice} needs {needed}, and this run is on "
        f"{PLATFORMS.get(platform, platform)}; choose {format_names(['auto', 'plain', *own])}"
    )


def format_names(names: list[str], last: str = "or") -> str:
    """Return "a, b or c"."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def make_attend(
    mesh: Mesh,
    report_kernel: Callable[[str, str | None], None] = lambda kernel, reason: None,
    on_shard: bool = False,
    rules: AttentionRules = AUTOMATIC,
) -> Callable[..., jax.Array]:
    """Return a function with the signature of `attend` for the devices of a mesh.

    Args:
      report_kernel: called with (kernel, reason) whenever attention is traced. The reason says why
        the kernels that the platform prefers were not chosen; it is None if the first one was.
      on_shard: for a function inside `jax.shard_map`, which has the rows of one device. The kernels
        get a mesh of one device.
      rules: which kernels may be used.

    Raises:
      ConfigError: the platform does not have the chosen kernel, or, where `rules` are strict, the
        kernel cannot serve a call that is traced.
    """
    platform = mesh.devices.flat[0].platform
    check_platform(rules.choice, platform)
    if platform not in KERNELS:
        plain = choose_plain_attend(mesh)

        def attend_plainly(*arrays: jax.Array, **options: Any) -> jax.Array:
            report_kernel("XLA", None)
            return plain(*arrays, **options)

        return attend_plainly
    options: dict[str, Any] = {"mesh": mesh}
    if on_shard:
        options = {"mesh": Mesh(mesh.devices[:1, :1, :1, :1], AXES), "on_shard": True}

    if platform == "gpu":
        options["calls"] = itertools.count()

    def attend_by_kernel(
        q_BLHK: jax.Array,
        k_BMGK: jax.Array,
        v_BMGK: jax.Array,
        *,
        mask: Mask | jax.Array | None = None,
        bias: jax.Array | PairBias | None = None,
        scale: float | None = None,
        soft_cap: float | None = None,
        drop: KeyedDropout | None = None,
    ) -> jax.Array:
        # No kernel shares the keys of several query heads.
        k_BMHK, v_BMHK = (repeat_heads(x, q_BLHK.shape[2]) for x in (k_BMGK, v_BMGK))
        v_BMHK, drop = move_shared_dropout(q_BLHK, v_BMHK, mask, bias, drop)
        call = AttentionCall(q_BLHK, k_BMHK, v_BMHK, mask, bias, scale, drop, soft_cap)
        kernel, reasons = choose_kernel(platform, call, options["mesh"], rules)
        report_kernel(kernel.name if kernel else "XLA", ", ".join(reasons) or None)
        if kernel is None:
            return attend(q_BLHK, k_BMHK, v_BMHK, **call.list_options())
        return kernel.attend(q_BLHK, k_BMHK, v_BMHK, **call.list_options(), **options)

    return attend_by_kernel


def choose_plain_attend(mesh: Mesh) -> Callable[..., jax.Array]:
    """Return what computes the plain equations on devices without kernels."""
    is_one_cpu = mesh.devices.flat[0].platform == "cpu" and mesh.size == 1
    return attend_in_parts if is_one_cpu else attend


def choose_kernel(
    platform: str, call: AttentionCall, mesh: Mesh, rules: AttentionRules
) -> tuple[AttentionKernel | None, list[str]]:
    """Return the kernel of a call, None for the plain equations, and the reasons against others."""
    if rules.choice == "plain":
        return None, ["train.attention=plain"]
    reasons, kernels = [], list_kernels(platform, call.mask)
    for kernel in kernels:
        if rules.choice not in ("auto", kernel.choice):
            continue
        reason = find_obstacle(kernel, call, mesh) or rules.find_doubt(kernel, call, mesh)
        if reason is None:
            return kernel, reasons
        reasons.append(f"{kernel.name} {reason}")
    if rules.choice != "auto" and not reasons:  # It is a kernel for other masks.
        takes = "takes only" if rules.choice == "chunk" else "takes no"
        reasons.append(f"it {takes} chunks of sorted keys")
    if rules.choice != "auto" and rules.is_strict:
        able = [kernel.choice for kernel in kernels if find_obstacle(kernel, call, mesh) is None]
        raise ConfigError(
            f"train.attention={rules.choice} cannot serve this run: {reasons[0]}; choose "
            f"{format_names(['auto', 'plain', *able])}"
        )
    return None, reasons


def find_obstacle(kernel: AttentionKernel, call: AttentionCall, mesh: Mesh) -> str | None:
    """Return why a kernel cannot compute a call, or None."""
    if call.soft_cap is not None and not kernel.caps_scores:
        return "cannot cap the scores"
    return kernel.find_obstacle(call.q_BLHK, call.k_BMHK, call.mask, call.bias, call.drop, mesh)


def has_kernels(mesh: Mesh) -> bool:
    """Return whether a mesh has devices of this program for which there are kernels."""
    device = mesh.devices.flat[0]
    return bool(list_all_kernels(device.platform)) and is_attached(mesh)


def is_attached(mesh: Mesh) -> bool:
    """Return whether a mesh has devices of this program; `plan` compiles for others."""
    device = mesh.devices.flat[0]
    return device.platform == jax.default_backend() and device in jax.devices()
