"""Each operation of a step has one kind, derived from the line of the model that it came from."""

import pytest

from benchmarks.speed.step_profile import format_row
from pretrain.training.monitoring.operations import (
    COPIES,
    OTHER,
    classify_operation,
    parse_operations,
    sum_kinds,
)

STATES = "jit(step)/jvp(Bert.states)/bert/encoder/layer_0"
BACK = "jit(step)/transpose(jvp(Bert.states))/bert/encoder/layer_0"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{STATES}/mlp/up/cond/branch_0_fun/dot_general", "layers: products, forwards"),
        (f"{STATES}/attention/query/cond/branch_0_fun/dot_general", "layers: products, forwards"),
        (f"{BACK}/mlp/down/cond/branch_0_fun/transpose", "layers: products, backwards"),
        (f"{BACK}/mlp/up/cond/branch_0_fun/transpose()/transpose", "layers: products, backwards"),
        (f"{BACK}/attention/out/cond/branch_0_fun/dot_general", "layers: products, backwards"),
        (f"{STATES}/attention/blhk,bmhk->bhlm/dot_general", "attention: scores and sums"),
        (f"{BACK}/attention/bhlm,bmhk->blhk/transpose", "attention: scores and sums"),
        (f"{STATES}/attention/reduce_max", "attention: softmax, dropout, order of heads"),
        (f"{STATES}/attention_norm/sub", "norms"),
        (f"{BACK}/mlp/transpose(jvp())/add_any", "feed-forward: activation, bias"),
        (f"{BACK}/attention_norm/jvp()/rsqrt", "norms"),
        (f"{BACK}/mlp/down/transpose({BACK})/mlp/down/jvp()/erf", "feed-forward: activation, bias"),
        (f"{BACK}/attention/transpose(bhlm,bmhk->blhk)/dot_general", "attention: scores and sums"),
        (f"{STATES}/add", "residuals, dropout"),
        ("jit(step)/transpose(jvp(Bert.logits))/mlm_head/token_embedding.attend/cond/branch_0_fun/dot_general",
         "words: product"),
        ("jit(step)/transpose(jvp(Gpt2.logits))/token_embedding.attend/cond/branch_0_fun/transpose()/transpose",
         "words: product"),
        ("jit(step)/jvp()/exp", "words: cross entropy"),
        ("jit(step)/transpose(jvp())/mul", "words: cross entropy"),
        ("jit(step)/jvp(Bert.states)/bert/embeddings/add", "embeddings"),
        ("jit(step)/jit(_where)/select_n", "optimizer, clipping"),
        ("something else", OTHER),
    ],
)  # fmt: skip
def test_the_kind_of_an_operation(name, kind):
    assert classify_operation("fusion.1", name) == kind


def test_copies_have_no_name_and_loops_are_described_by_their_contents():
    assert (classify_operation("copy.3", ""), classify_operation("fusion.3", "")) == (COPIES, OTHER)
    assert classify_operation("while.2", "jit(step)/jvp()/while") is None


def test_a_gpu_s_copies_of_slices_are_counted_although_the_program_does_not_list_them():
    times = {"loop_dynamic_slice_fusion.3": 1.0, "fusion.1": 2.0, "unknown": 4.0}
    kinds = sum_kinds(times, {"fusion.1": f"{STATES}/attention_norm/sub"})
    assert kinds == {COPIES: 1.0, "norms": 2.0}


def test_instructions_of_a_program_with_the_operations_that_they_came_from():
    import jax
    import jax.numpy as jnp

    text = jax.jit(lambda x: jnp.sin(x @ x).sum()).lower(jnp.ones((64, 64))).compile().as_text()
    names = parse_operations(text)
    assert any(name.endswith("/dot_general") for name in names.values()) and any(
        name.endswith("/sin") for name in names.values()
    )
    assert all(f"{instruction} = " in text for instruction in names)


def test_a_row_has_shares_of_the_operations_time_and_lower_bounds_of_the_step():
    ready = {"flops": 3e9, "rate": 1e10}
    cells = format_row(
        "small", "float32", ready, {"seconds": 0.5, "kinds": {"norms": 0.15, COPIES: 0.45}}
    ).split(" | ")
    assert cells[2:4] == ["500", "60%"] and "25.0%" in cells and cells[-2] == "75.0%"
