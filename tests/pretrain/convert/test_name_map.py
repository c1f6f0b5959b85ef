"""Rules for stacks with different layers, and for fused tensors: every name once, in both
directions; ModernBERT is the example.

D width   H heads   K head width   F width of an MLP   G groups of layers
"""

import jax
import numpy as np
import pytest

from models.layers.layer_layout import flatten_params, unflatten_params, unstack_layers
from pretrain.convert.name_map import ImportReport, expand_rules, export_tensors, fill_params
from pretrain.families.rules import (
    JOINED,
    KERNEL,
    KERNEL_OUT,
    SAME,
    Index,
    JoinLayout,
    Layout,
    SplitLayout,
)

pytestmark = pytest.mark.fast

VOCAB, D, H, K, F, G = 40, 12, 3, 4, 10, 7
DEPTHS = {"encoder/groups": G}


def make_layer_rules(ours, theirs, first=False):
    """Return the rules of one of ModernBERT's layers; the first layer has no norm before its
    attention.
    """
    attention = f"{ours}/attention"
    rules = (
        (tuple(f"{attention}/{name}/kernel" for name in ("query", "key", "value")),
         f"{theirs}.attn.Wqkv.weight", JoinLayout(KERNEL)),
        (f"{attention}/out/kernel", f"{theirs}.attn.Wo.weight", KERNEL_OUT),
        (f"{ours}/mlp_norm/scale", f"{theirs}.mlp_norm.weight", SAME),
        ((f"{ours}/mlp/gate/kernel", f"{ours}/mlp/up/kernel"), f"{theirs}.mlp.Wi.weight",
         JoinLayout(KERNEL)),
        (f"{ours}/mlp/down/kernel", f"{theirs}.mlp.Wo.weight", KERNEL),
    )  # fmt: skip
    norm = (f"{ours}/attention_norm/scale", f"{theirs}.attn_norm.weight", SAME)
    return rules if first else (*rules, norm)


GROUP = ("local_0", "local_1", "global")
RULES = (
    ("tokens/embedding", "embeddings.tok_embeddings.weight", SAME),
    ("embeddings_norm/scale", "embeddings.norm.weight", SAME),
    *make_layer_rules("encoder/first", "layers.0", first=True),
    *(
        rule
        for place, kind in enumerate(GROUP)
        for rule in make_layer_rules(
            f"encoder/groups/layers/{kind}", f"layers.{Index(1 + place, 3)}"
        )
    ),
    ("norm/scale", "final_norm.weight", SAME),
)


def layer_params(rng, *leading, first=False):
    def draw_array(*shape):
        return rng.standard_normal((*leading, *shape), np.float32)

    attention = {name: {"kernel": draw_array(D, H, K)} for name in ("query", "key", "value")}
    norms = {"mlp_norm": {"scale": draw_array(D)}}
    return (norms if first else norms | {"attention_norm": {"scale": draw_array(D)}}) | {
        "attention": attention | {"out": {"kernel": draw_array(H, K, D)}},
        "mlp": {
            "gate": {"kernel": draw_array(D, F)},
            "up": {"kernel": draw_array(D, F)},
            "down": {"kernel": draw_array(F, D)},
        },
    }


def make_params(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "tokens": {"embedding": rng.standard_normal((VOCAB, D), np.float32)},
        "embeddings_norm": {"scale": rng.standard_normal(D, np.float32)},
        "encoder": {
            "first": layer_params(rng, first=True),
            "groups": {"layers": {kind: layer_params(rng, G) for kind in GROUP}},
        },
        "norm": {"scale": rng.standard_normal(D, np.float32)},
    }


def fill_all(tensors, rules, params):
    return fill_params(
        tensors,
        rules,
        DEPTHS,
        params,
        head_prefixes=(),
        body_prefixes=("embeddings.", "layers.", "final_"),
    )


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("stacked", [True, False])
def test_22_layers_are_one_and_seven_times_three(stacked):
    """Layer 0 is `first`; 3, 6, ... 21 are global; each tensor belongs to our layer, stacked or
    not.
    """
    params = make_params()
    tensors = export_tensors(params if stacked else unstack_layers(params), RULES, DEPTHS)
    assert {name for name in tensors if "layers." not in name} == {
        "embeddings.tok_embeddings.weight",
        "embeddings.norm.weight",
        "final_norm.weight",
    }
    for i in range(1 + 3 * G):
        group, place = divmod(i - 1, 3)
        ours = params["encoder"]["first"]
        if i > 0:
            stack = params["encoder"]["groups"]["layers"][GROUP[place]]
            ours = jax.tree.map(lambda leaf, group=group: leaf[group], stack)
        read = [ours["attention"][name]["kernel"] for name in ("query", "key", "value")]
        wqkv = np.concatenate([kernel.reshape(D, H * K).T for kernel in read])
        np.testing.assert_array_equal(tensors.pop(f"layers.{i}.attn.Wqkv.weight"), wqkv)
        wi = np.concatenate([ours["mlp"]["gate"]["kernel"].T, ours["mlp"]["up"]["kernel"].T])
        np.testing.assert_array_equal(tensors.pop(f"layers.{i}.mlp.Wi.weight"), wi)
        scale = ours["mlp_norm"]["scale"]
        np.testing.assert_array_equal(tensors.pop(f"layers.{i}.mlp_norm.weight"), scale)
        assert (f"layers.{i}.attn_norm.weight" in tensors) == (i > 0)
    initial = make_params(seed=1) if stacked else unstack_layers(make_params(seed=1))
    tensors = export_tensors(params, RULES, DEPTHS)
    back, report = fill_all(tensors, RULES, initial)
    assert_same(back, params if stacked else unstack_layers(params))
    assert report == ImportReport((), ())


@pytest.mark.more
@pytest.mark.slow
def test_every_tensor_of_transformers_modernbert_has_a_rule():
    """ModernBERT's own names and shapes survive a round trip bit for bit, and its fused layers
    compute what our names denote.
    """
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    config = transformers.ModernBertConfig(
        vocab_size=VOCAB,
        hidden_size=D,
        num_attention_heads=H,
        intermediate_size=F,
        num_hidden_layers=1 + 3 * G,
        **dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
    )
    torch.manual_seed(0)
    model = transformers.ModernBertModel(config)
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    tensors = {
        name: np.random.default_rng(i).standard_normal(tensor.shape, np.float32)
        for i, (name, tensor) in enumerate(tensors.items())
    }
    names = [name for match in expand_rules(RULES, DEPTHS) for name in match.theirs]
    assert sorted(names) == sorted(tensors)
    is_global = ["full_attention" == kind for kind in config.layer_types]
    assert is_global == [True, *(kind == "global" for _ in range(G) for kind in GROUP)]
    params, report = fill_all(tensors, RULES, make_params())
    assert report == ImportReport((), ())
    again = export_tensors(params, RULES, DEPTHS)
    assert again.keys() == tensors.keys()
    assert all(again[name].tobytes() == tensors[name].tobytes() for name in tensors)

    model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in tensors.items()})
    x = np.random.default_rng(1).standard_normal((2, D), np.float32)
    mlp = jax.tree.map(lambda leaf: leaf[1], params["encoder"]["groups"]["layers"]["local_1"])[
        "mlp"
    ]
    gate = torch.nn.functional.gelu(torch.from_numpy(x @ mlp["gate"]["kernel"])).numpy()
    with torch.no_grad():
        theirs = model.layers[1 + 3 + 1].mlp.eval()(torch.from_numpy(x)).numpy()
    ours = (gate * (x @ mlp["up"]["kernel"])) @ mlp["down"]["kernel"]
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4)


def test_one_leaf_of_several_tensors():
    """Experts are one array here and a tensor each there, in a stack of two layers."""
    names = tuple(f"layers.{{i}}.experts.{e}.weight" for e in range(3))
    rules = (("stack/layers/experts", names, SplitLayout(SAME, 3)),)
    params = {"stack": {"layers": {"experts": np.arange(48.0, dtype=np.float32).reshape(2, 6, 4)}}}
    tensors = export_tensors(params, rules, {"stack": 2})
    assert list(tensors) == [f"layers.{i}.experts.{e}.weight" for i in range(2) for e in range(3)]
    np.testing.assert_array_equal(
        tensors["layers.1.experts.2.weight"], params["stack"]["layers"]["experts"][1, 4:]
    )
    empty = jax.tree.map(np.zeros_like, params)
    back, _ = fill_params(tensors, rules, {"stack": 2}, empty, head_prefixes=(), body_prefixes=())
    assert_same(back, params)
    del tensors["layers.1.experts.2.weight"]
    with pytest.raises(ValueError, match=r"missing layers\.1\.experts\.2\.weight, which the model"):
        fill_params(tensors, rules, {"stack": 2}, empty, head_prefixes=(), body_prefixes=())


def test_a_leaf_is_there_as_a_whole_or_stays_as_it_was():
    """If its tensors belong to two heads and one head is missing, it is neither."""
    rules = (("table", ("one.weight", "two.weight"), SplitLayout(SAME, 2)),)
    params = {"table": np.arange(8.0, dtype=np.float32).reshape(4, 2)}
    heads = ("one.", "two.")
    back, report = fill_params({}, rules, {}, params, head_prefixes=heads, body_prefixes=())
    assert_same(back, params)
    assert report.missing == ("one.weight", "two.weight")
    with pytest.raises(ValueError, match=r"missing one\.weight, without which there is no table"):
        fill_params(
            {"two.weight": params["table"][2:]},
            rules,
            {},
            params,
            head_prefixes=heads,
            body_prefixes=(),
        )


def test_a_fused_tensor_of_another_shape_is_named_with_the_shape_it_should_have():
    tensors = export_tensors(make_params(), RULES, DEPTHS)
    tensors["layers.4.attn.Wqkv.weight"] = np.zeros((2 * D, D), np.float32)
    with pytest.raises(
        ValueError, match=r"layers\.4\.attn\.Wqkv\.weight has shape \[24, 12\]; .* it \[36, 12\]"
    ):
        fill_all(tensors, RULES, make_params())


def test_leaves_that_cannot_be_joined_are_named():
    params = make_params()
    params["encoder"]["first"]["mlp"]["up"]["kernel"] = np.zeros((D + 1, F), np.float32)
    with pytest.raises(
        ValueError,
        match=r"first/mlp/gate/kernel, .*first/mlp/up/kernel <-> layers\.0\.mlp\.Wi\.weight: \[\[10",
    ):
        export_tensors(params, RULES, DEPTHS)


def test_a_tensor_too_few_is_named():
    tensors = export_tensors(make_params(), RULES, DEPTHS)
    del tensors["layers.5.mlp.Wi.weight"]
    with pytest.raises(ValueError, match=r"missing layers\.5\.mlp\.Wi\.weight, which"):
        fill_all(tensors, RULES, make_params())


def test_a_layer_too_many_is_named():
    tensors = export_tensors(make_params(), RULES, DEPTHS)
    tensors["layers.22.mlp.Wi.weight"] = tensors["layers.21.mlp.Wi.weight"]
    with pytest.raises(ValueError, match=r"no place in the model for layers\.22\.mlp\.Wi\.weight;"):
        fill_all(tensors, RULES, make_params())


STACK = {"s": 2, "t": 2}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([("s/layers/w", f"h.{Index(0, 2)}.w", SAME)], r"no rule for their h\.1$"),
        ([("s/layers/w", f"h.{Index(2)}.w", SAME)], r"no rule for their h\.0, h\.1$"),
        ([("s/layers/w", "h.{i}.w", SAME), ("t/layers/w", f"h.{Index(1)}.w", SAME)],
         r"two rules for their h\.1\.w: s/layer_1/w and t/layer_0/w"),
        ([(("a", "b"), "A", JoinLayout(SAME)), ("b", "B", SAME)], "two rules for our b: A and B"),
        ([(("a", "a"), "A", JoinLayout(SAME))], "two rules for our a: A and A"),
        ([("a", ("A", "B"), SplitLayout(SAME, 2)), ("b", "B", SAME)], "two rules for their B: a and b"),
        ([(("a", "b"), "A", SAME)], "a, b <-> A: several paths need a Join"),
        ([("a", ("A", "B"), JoinLayout(SAME))], "a <-> A, B: .* several names a Split"),
        ([("a", ("A", "B"), SplitLayout(SAME, 3))], "a <-> A, B: 2 names for a Split into 3"),
        ([("a", "h.{i}.w", SAME)], "a <-> h.{i}.w: a name with an index needs paths with `layers`"),
        ([(("s/layers/a", "b"), "h.{i}.w", JoinLayout(SAME))], "needs paths with `layers`, of one stack"),
        ([(("s/layers/a", "t/layers/a"), "h.{i}.w", JoinLayout(SAME))], "needs paths with `layers`, of one stack"),
        ([("s/layers/a", "h.w", SAME)], "a path with `layers` needs {i} in every name"),
        ([("u/layers/a", "h.{i}.w", SAME)], "no depth of the stack u; given are s, t"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_rules_that_cannot_be_are_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        expand_rules(rules, STACK)


def test_fused_biases_and_kernels_of_a_head_by_head_layout_come_back():
    """GPT-NeoX's query_key_value in a stack of two layers, numbered from 0."""
    straight = Layout(lambda a: a.reshape(a.shape[0], -1), lambda a, shape: a.reshape(shape))
    rng = np.random.default_rng(0)
    parts = ("query", "key", "value")
    params = {
        "stack/layers/" + name: rng.standard_normal((2, *shape), np.float32)
        for part in parts
        for name, shape in ((f"{part}/kernel", (D, H, K)), (f"{part}/bias", (H, K)))
    }
    for layout, axis in ((KERNEL, 0), (straight, 1)):
        kernels, biases = (
            tuple(f"stack/layers/{part}/{name}" for part in parts) for name in ("kernel", "bias")
        )
        rules = (
            (kernels, "h.{i}.qkv.weight", JoinLayout(layout, axis, interleave=-2)),
            (biases, "h.{i}.qkv.bias", JoinLayout(JOINED, interleave=-2)),
        )
        tree = unflatten_params(params)
        tensors = export_tensors(tree, rules, {"stack": 2})
        x = rng.standard_normal(D, np.float32)
        weight = tensors["h.1.qkv.weight"] if layout is KERNEL else tensors["h.1.qkv.weight"].T
        out_HPK = (weight @ x + tensors["h.1.qkv.bias"]).reshape(H, 3, K)
        for p, part in enumerate(parts):
            kernel, bias = (params[f"stack/layers/{part}/{name}"][1] for name in ("kernel", "bias"))
            expected = np.einsum("d,dhk->hk", x, kernel) + bias
            np.testing.assert_allclose(out_HPK[:, p], expected, rtol=1e-4, atol=1e-5)
        back, _ = fill_params(
            tensors,
            rules,
            {"stack": 2},
            jax.tree.map(np.zeros_like, tree),
            head_prefixes=(),
            body_prefixes=(),
        )
        assert flatten_params(back).keys() == params.keys()
        assert_same(back, tree)
