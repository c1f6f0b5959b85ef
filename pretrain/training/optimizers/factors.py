"""LoRA in a run: which kernels have factors, how these begin, and how their gradients follow.

The step computes with merged kernels (`models.layers.lora`), so models, kernels and exchanges know
nothing of LoRA: the gradient of a merged kernel gives the gradients of its two factors. With
`train.lora_dropout` a product reads other inputs than its kernel, so training adds the products to
the outputs of the linear maps instead.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.config.heads import HeadedConfig
from models.layers.dropout import KeyedDropout
from models.layers.layer_layout import flatten_params, unflatten_params
from models.layers.linear import Dense
from models.layers.lora import LORA_A, LORA_B, draw_factor, merge_factors
from models.layers.ops import apply_linear
from pretrain.config import Run
from pretrain.families import find_family
from pretrain.mesh.gradient_exchange import GradientFn
from pretrain.mesh.sharding import find_dimension_names, format_path
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers.frozen import make_frozen_test

KERNEL = re.compile(
    r"(?:.*/)?(?P<module>attention|cross|mlp)"
    r"/(?P<part>query|key|value|out|gate|up|down)/kernel"
)


class Lora(NamedTuple):
    """How a run with LoRA computes.

    Attributes:
      merge: parameters with factors -> parameters of the model; jitted.
      differentiate: the gradient of a model's parameters -> the gradient of parameters with
        factors, which is 0 for frozen ones.
    """

    merge: Callable[[Any], Any]
    differentiate: Callable[[GradientFn], GradientFn]


def make_lora(run: Run) -> Lora:
    """Return LoRA as the settings of a run have it."""
    scale, is_frozen, rate = run.train.lora_scale, make_frozen_test(run), run.train.lora_dropout

    def merge(params: Any) -> Any:
        return merge_factors(params, scale)

    def merge_trained(params: Any) -> Any:
        return merge(
            jax.tree_util.tree_map_with_path(
                lambda keys, leaf: (
                    jax.lax.stop_gradient(leaf) if is_frozen(format_path(keys)) else leaf
                ),
                params,
            )
        )

    def differentiate(compute_gradient: GradientFn) -> GradientFn:
        def compute_trained(params: Any, *inputs: Any) -> Any:
            merged, pull_back = jax.vjp(merge_trained, params)
            gradients, outputs = compute_gradient(merged, *inputs)
            return *pull_back(gradients), outputs

        return compute_trained

    def differentiate_dropped(compute_gradient: GradientFn) -> GradientFn:
        def compute_trained(params: Any, *inputs: Any) -> Any:
            with nn.intercept_methods(partial(add_dropped_product, rate, scale)):
                gradients, outputs = compute_gradient(params, *inputs)
            trained = jax.tree_util.tree_map_with_path(
                lambda keys, leaf: jnp.zeros_like(leaf) if is_frozen(format_path(keys)) else leaf,
                gradients,
            )
            return trained, outputs

        return compute_trained

    return Lora(jax.jit(merge), differentiate_dropped if rate else differentiate)


def add_dropped_product(
    rate: float,
    scale: float,
    call: Callable[..., jax.Array],
    args: tuple[jax.Array, ...],
    options: dict[str, Any],
    context: nn.module.InterceptorContext,
) -> jax.Array:
    """Return a linear map's output + scale * drop(x) A B, if it has factors; intercepts its call.

    Each map draws its own dropout, also where several share an A.
    """
    y, dense = call(*args, **options), context.module
    if not isinstance(dense, Dense) or not dense.has_variable("params", LORA_B):
        return y
    owner: Any = dense if dense.has_variable("params", LORA_A) else dense.parent
    a, b = owner.get_variable("params", LORA_A), dense.get_variable("params", LORA_B)
    activation, drop, axes = options.get("activation"), options.get("drop"), a.ndim - 1
    x = activation(*args) if activation else args[0]
    x = drop(x) if drop else x
    key = jax.random.key_data(dense.make_rng("dropout")).reshape(-1)[-2:]
    by_row = x.ndim - axes > 1  # A table of positions has no rows of the batch.
    x = KeyedDropout(key, rate, (), dense.ops.drop, by_row)(x)
    return y + (scale * apply_linear(apply_linear(x, a, axes), b)).astype(y.dtype)


def add_factors(run: Run, params: Any) -> Any:
    """Return parameters with a random A and a zero B beside each target that has none.

    Raises:
      ConfigError: the model has no such kernel, or a smaller one than the rank.
    """
    rank: Any = run.train.lora_rank
    leaves = flatten_params(params)
    for target in run.train.lora_targets:
        if not find_targets(leaves, (target,)):
            name = type(run.model.backbone).__name__
            raise ConfigError(
                f"train.lora_targets={target}: a {name} has no such matrix in its layers; give "
                "train.lora_rank=none, or targets among "
                f"{','.join(list_parts(leaves)) or 'none: LoRA needs attention or MLPs'}"
            )
    targets = find_targets(leaves, run.train.lora_targets)
    fused, added = list_fused_kernels(run.model), {}
    key = jax.random.fold_in(jax.random.key(run.train.seed), 0)  # which drew the parameters
    for path in targets:
        module, names = path.rpartition("/")[0], find_dimension_names(path, leaves[path].shape)
        layers = leaves[path].shape[:1] if "/layers/" in f"/{path}" else ()
        shape, names = leaves[path].shape[len(layers) :], names[len(layers) :]
        split = max(1, names.index("embed"))  # where the axes of the output begin
        if rank > (limit := min(math.prod(shape[:split]), math.prod(shape[split:]))):
            raise ConfigError(
                f"train.lora_rank={rank}: {path} has at most rank {limit}; lower train.lora_rank"
            )
        place = module.rpartition("/")[0] if name_layers(path)[0] in fused else module
        if f"{place}/{LORA_A}" not in leaves:
            added[f"{place}/{LORA_A}"] = draw_layers(key, place, layers, shape[:split], rank)
        if f"{module}/{LORA_B}" not in leaves:
            added[f"{module}/{LORA_B}"] = jnp.zeros((*layers, rank, *shape[split:]), jnp.float32)
    return unflatten_params(leaves | added)


def draw_layers(
    key: jax.Array, place: str, layers: tuple[int, ...], in_shape: tuple[int, ...], rank: int
) -> jax.Array:
    """Return the A of a module, of each layer of a scanned stack the same as of an unrolled one."""
    name, layer = name_layers(place)
    key = jax.random.fold_in(key, zlib.crc32(name.encode()))
    if not layers:
        return draw_factor(jax.random.fold_in(key, layer), in_shape, rank)
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(layers[0]))
    return jax.vmap(lambda key: draw_factor(key, in_shape, rank))(keys)


def name_layers(path: str) -> tuple[str, int]:
    """Return (the path as a scanned stack has it, the number of the layer or 0)."""
    number = re.search(r"/layer_(\d+)/", path)
    return re.sub(r"/layer_\d+/", "/layers/", path, count=1), int(number[1]) if number else 0


def find_targets(paths: Collection[str], targets: Collection[str]) -> list[str]:
    """Return the paths of the kernels that `train.lora_targets` names."""
    kinds = {"attention": "attention", "cross": "attention", "mlp": "mlp"}
    matches = ((path, KERNEL.fullmatch(path)) for path in paths)
    return [
        path
        for path, match in matches
        if match and {match["part"], kinds[match["module"]]} & {*targets}
    ]


def list_parts(paths: Collection[str]) -> list[str]:
    """Return the names of the matrices that a model has in its layers."""
    matches = map(KERNEL.fullmatch, paths)
    return list(dict.fromkeys(match["part"] for match in matches if match))


def list_fused_kernels(model: Any) -> set[str]:
    """Return the paths of the kernels that are one matrix in transformers, such as `c_attn`.

    They share an A, as they do in `peft`, which adapts that matrix.
    """
    hf_map = find_family(model.backbone).hugging_face
    if hf_map is None:
        return set()
    prefix = "encoder/" if isinstance(model, HeadedConfig) else ""
    return {prefix + path for path in _list_joined(hf_map.make_rules(model.backbone))}


def _list_joined(rules: Any) -> Iterator[str]:
    """Yield our kernels of the rules that join kernels of one module."""
    for ours, _, _ in rules:
        if isinstance(ours, str) or not all(KERNEL.fullmatch(path) for path in ours):
            continue
        if len({path.rsplit("/", 2)[0] for path in ours}) == 1:
            yield from ours
