"""A kernel is compared with the plain equations before it is trusted: one that is wrong, raises, hangs
or crashes is left out, and what was found is remembered for the same shapes, device and versions.
"""

import json
import os
import re
import socket
import time
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from models.layers.dropout import KeyedDropout
from models.layers.long_rows.key_chunks import KeyChunks
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from models.layers.relative.distance_bias import DistanceBias, TextScores
from pretrain.config import Mesh
from pretrain.kernels.attention.choice import AttentionCall, AttentionKernel
from pretrain.kernels.attention.chunk.chunk_shards import attend_with_chunks
from pretrain.kernels.attention.plain import attend
from pretrain.kernels.attention.row.sharded import attend_with_rows
from pretrain.kernels.attention.splash.splash_attention import attend_with_splash
from pretrain.kernels.hash_dropout import drop_by_hash, drop_on_shard
from pretrain.kernels.trials import attention_calls
from pretrain.kernels.trials.attention_calls import cut_call, describe_call, name_call
from pretrain.kernels.trials.comparison import Verdict, compare_attention
from pretrain.kernels.trials.trial_memory import TrialMemory, describe_machine
from pretrain.mesh.sharding import make_mesh

pytestmark = pytest.mark.slow

B, L, H, K = 8, 32, 2, 8
KEY = {"operation": "attention: row", "shapes": {"q_BLHK": "float32[4, 32, 2, 8]"}}


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def make_call(mask=None, bias=None, drop=None, M=L, L=L, dtype=jnp.float32, heads=H, width=K):
    q, k = shape(B, L, heads, width, dtype=dtype), shape(B, M, heads, width, dtype=dtype)
    return AttentionCall(q, k, k, mask, bias, None, drop)


PADDING, IDS = shape(B, L, dtype=jnp.bool_), shape(B, L, dtype=jnp.int32)
DROP = KeyedDropout(shape(2, dtype=jnp.uint32), 0.3, (), drop_by_hash)
PREDICTED, MEMORY = 5, 16
QUERY_IDS, KEY_IDS = (shape(B, n, dtype=jnp.int32) for n in (L + PREDICTED, MEMORY + L))
BOTH_STREAMS = DistanceBias(
    shape(B, L + PREDICTED, H, K),
    shape(MEMORY + 2 * L - 1, H, K),
    num_keys=MEMORY + L,
    scale=K**-0.5,
    position_BP=shape(B, PREDICTED, dtype=jnp.int32),
    texts=TextScores(*(shape(B, H, L + PREDICTED),) * 2, QUERY_IDS, KEY_IDS),
)
CALLS = {
    "padding, dropout": make_call(make_padding_mask(PADDING), drop=DROP),
    "packed": make_call(make_padding_mask(PADDING, IDS)),
    "causal, a bias": make_call(make_causal_mask(), shape(1, H, L, L)),
    "an array of pairs": make_call(shape(B, 1, L, L, dtype=jnp.bool_)),
    "from a decoder": make_call(Mask(shape(B, 48, dtype=jnp.bool_)), M=48),
    "both streams": make_call(
        Mask(ranks=(QUERY_IDS, KEY_IDS), offset=MEMORY), BOTH_STREAMS, DROP, MEMORY + L, L + PREDICTED
    ),
}  # fmt: skip


def cut(call):
    return cut_call(call, make_mesh(Mesh(1), jax.devices()[:1]))


def compare(attend_by, call):
    kernel = AttentionKernel("row", "kernel", lambda *_: None, attend_by)
    return compare_attention(kernel, cut(call), jax.devices()[0])


def change(function, **options):
    """Return a kernel whose result is `function` of the plain equations'."""

    def attend_changed(q, k, v, *, mesh, **call):
        return function(attend(q, k, v, **(call | options)))

    return attend_changed


@jax.custom_vjp
def negate_gradient(x):
    return x


negate_gradient.defvjp(lambda x: (x, None), lambda _, gradient: (-gradient,))


def fail(x):
    raise ValueError("Mosaic failed to compile\nand dumped a module")


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", list(CALLS))
def test_the_whole_row_kernel_is_trusted_with_what_it_takes(name):
    verdict = compare(partial(attend_with_rows, interpret=True), CALLS[name])
    assert verdict.reason == "" and "of the bound" in verdict.detail


@pytest.mark.usefixtures("promoting")
def test_splash_and_the_chunk_kernel_are_trusted():
    rows = make_call(make_causal_mask(shape(B, 128, dtype=jnp.bool_)), M=128, L=128)
    rows = rows._replace(soft_cap=0.5)
    assert compare(partial(attend_with_splash, interpret=True), rows).reason == ""
    chunks = KeyChunks(128, 128, shape(B, H, 2, 256, dtype=jnp.int32), avoids_self=True)
    hashed = make_call(Mask(causal=True, chunks=chunks), drop=DROP, M=256, L=256)
    assert compare(partial(attend_with_chunks, interpret=True), hashed).reason == ""


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("kernel", "dtype", "words"),
    [
        (change(lambda out: out * 1.02), jnp.bfloat16, "failed its test: the output is off by 0.02"),
        (change(lambda out: out * 1.0001), jnp.float32, "failed its test: the output is off by 0.0001"),
        (change(negate_gradient), jnp.bfloat16, "failed its test: the gradient of q is off by 2"),
        (change(lambda out: out.at[1, 3, 0].set(jnp.nan)), jnp.float32, "the output has values that"),
        (change(lambda out: out[:, :-1]), jnp.float32, "did not run in its test: TypeError"),
        (change(fail), jnp.float32, "did not run in its test: ValueError: Mosaic failed to compile$"),
        (change(lambda out: out, mask=None), jnp.bfloat16, "failed its test: the output is off by"),
        (change(lambda out: out, drop=None), jnp.bfloat16, "failed its test: the output is off by"),
        (change(lambda out: out, scale=0.36), jnp.bfloat16, "failed its test: the output is off by"),
    ],
)  # fmt: skip
def test_a_kernel_with_wrong_results_is_not_trusted(kernel, dtype, words):
    verdict = compare(kernel, make_call(make_padding_mask(PADDING), drop=DROP, dtype=dtype))
    assert re.search(words, verdict.reason) and "\n" not in verdict.reason, verdict


def test_a_kernel_that_forgets_the_soft_cap_is_not_trusted():
    call = make_call(make_padding_mask(PADDING), dtype=jnp.bfloat16)._replace(soft_cap=0.5)
    assert name_call(call).endswith("padding, a soft cap")
    verdict = compare(change(lambda out: out, soft_cap=None), call)
    assert verdict.reason.startswith("failed its test: the output is off by")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_plain_equations_are_trusted(dtype):
    call = make_call(make_padding_mask(PADDING), drop=DROP, dtype=dtype)
    assert compare(change(lambda out: out), call).reason == ""


def test_a_single_wrong_row_of_a_head_is_found():
    """It hides in the norm of the whole array."""
    call = make_call(make_causal_mask(), M=256, L=256, heads=8)
    verdict = compare(change(lambda out: out.at[2, 255, 7].mul(1.01)), call)
    assert verdict.reason.startswith("failed its test: the output is off by")


def test_what_padding_gets_does_not_count_if_it_is_finite():
    mask = make_padding_mask(PADDING)
    drawer = attention_calls.InputDrawer(cut(make_call(mask)))
    there = drawer.find_valid_queries()[..., None, None]
    assert not there.all()
    assert compare(change(lambda out: jnp.where(there, out, 7.0)), make_call(mask)).reason == ""
    verdict = compare(change(lambda out: jnp.where(there, out, jnp.inf)), make_call(mask))
    assert "not finite" in verdict.reason


def test_a_call_is_cut_to_few_rows_and_to_the_heads_of_a_device(monkeypatch):
    call = make_call(make_padding_mask(PADDING), shape(1, 8, L, L), DROP, heads=8)
    call = call._replace(drop=DROP.replace(drop_fn=drop_on_shard))
    mesh = make_mesh(Mesh(2, 1, 4), jax.devices())
    found = cut_call(call, mesh)
    assert found.q_BLHK.shape == (4, L, 2, K) and found.bias.shape == (1, 2, L, L)
    assert found.mask.attention_mask_BM.shape == (4, L)
    assert found.drop.drop_fn is drop_by_hash
    assert "4 x 32 x 32 positions, 2 heads of 8, float32, padding, a bias, dropout 0.3" == (
        name_call(found)
    )
    monkeypatch.setattr(attention_calls, "MAX_PAIRS", 4 * L * L)
    long = cut_call(call._replace(q_BLHK=shape(B, L, 8, K)), make_mesh(Mesh(1), jax.devices()[:1]))
    assert long.q_BLHK.shape == (1, L, 4, K)


def test_calls_have_the_same_description_exactly_if_they_are_the_same():
    described = {name: json.dumps(describe_call(cut(call))) for name, call in CALLS.items()}
    described |= {
        f"other {i}": json.dumps(describe_call(cut(make_call(mask, drop=drop))))
        for i, (mask, drop) in enumerate(
            [
                (make_causal_mask(), None),
                (make_causal_mask(window=7), None),
                (make_causal_mask(window=8), None),
                (make_causal_mask(), DROP),
                (make_causal_mask(), DROP.replace(rate=0.4)),
                (Mask(causal=True, chunks=KeyChunks(16, 16)), None),
            ]
        )
    }
    assert len(set(described.values())) == len(described)
    again = {name: json.dumps(describe_call(cut(call))) for name, call in CALLS.items()}
    assert again.items() <= described.items() and "0x" not in str(described)


# ---- the memory -----------------------------------------------------------------


def test_a_verdict_is_remembered_for_its_key_alone(tmp_path):
    memory = TrialMemory(tmp_path / "kernels")
    assert memory.read_verdict(KEY) is None
    memory.write_verdict(KEY, Verdict("failed its test: why", "how"))
    assert TrialMemory(tmp_path / "kernels").read_verdict(KEY) == ("failed its test: why", "how")
    assert memory.read_verdict(KEY | {"device": "TPU v5"}) is None
    assert [path.suffix for path in memory.folder.iterdir()] == [".json"]


@pytest.mark.held_by(4)
@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\x00", b"[]", b'{"key": 1, "reason": "", "detail": ""}', b"[" * 100_000,
        json.dumps({"key": KEY}).encode(),
        json.dumps({"key": KEY, "reason": 1, "detail": ""}).encode(),
        json.dumps({"key": KEY, "reason": "x" * 9999, "detail": ""}).encode(),
        json.dumps({"key": KEY | {"operation": "b"}, "reason": "", "detail": ""}).encode(),
        json.dumps({"key": KEY, "reason": "", "detail": ""}).encode()[:-3],
    ],
)  # fmt: skip
def test_a_torn_or_a_hostile_file_is_no_verdict(tmp_path, content):
    memory = TrialMemory(tmp_path)
    memory.find_file(KEY).write_bytes(content)
    assert memory.read_verdict(KEY) is None
    memory.write_verdict(KEY, Verdict())
    assert memory.read_verdict(KEY) == Verdict()


def test_what_a_file_says_is_one_line(tmp_path):
    memory = TrialMemory(tmp_path)
    memory.write_verdict(KEY, Verdict("failed\nits\ttest"))
    assert memory.read_verdict(KEY) == Verdict("failed its test")


def test_a_mark_counts_once_its_process_is_gone(tmp_path):
    memory = TrialMemory(tmp_path)
    with memory.mark_trial(KEY):
        (mark,) = tmp_path.iterdir()
        assert TrialMemory(tmp_path).read_verdict(KEY) is None  # its process is alive
    assert not mark.exists()
    with pytest.raises(KeyboardInterrupt), memory.mark_trial(KEY):
        raise KeyboardInterrupt
    assert not mark.exists()
    mark.touch()  # as of a process that was killed
    memory.write_verdict(KEY, Verdict())  # of an earlier process
    reason = memory.read_verdict(KEY).reason
    assert reason.startswith("was left out, because the process that tested it hung or crashed")
    assert f"delete {mark} to test it again" in reason
    mark.unlink()
    assert memory.read_verdict(KEY) == Verdict()


def test_a_mark_of_another_host_counts_when_it_is_old(tmp_path):
    """Its lock may not reach this host."""
    memory = TrialMemory(tmp_path)
    mark = tmp_path / f"{memory.find_file(KEY).stem}.{socket.gethostname()}x-1.testing"
    mark.touch()
    assert memory.read_verdict(KEY) is None
    os.utime(mark, (0, time.time() - 4000))
    assert "hung or crashed 67 minutes ago" in memory.read_verdict(KEY).reason


def test_a_folder_that_cannot_be_written_costs_a_test(tmp_path):
    (tmp_path / "file").write_text("")
    memory = TrialMemory(tmp_path / "file" / "kernels")
    with memory.mark_trial(KEY):
        memory.write_verdict(KEY, Verdict())
    assert memory.read_verdict(KEY) is None


def test_a_link_is_not_followed_to_a_mark(tmp_path):
    memory, victim = TrialMemory(tmp_path / "kernels"), tmp_path / "victim"
    memory.folder.mkdir()
    name = f"{memory.find_file(KEY).stem}.{socket.gethostname()}-{os.getpid()}.testing"
    (memory.folder / name).symlink_to(victim)
    with memory.mark_trial(KEY):
        assert not victim.exists()
    assert (memory.folder / name).is_symlink()


def test_another_device_and_another_code_are_another_machine(monkeypatch):
    first = describe_machine(jax.devices()[0])
    assert first == describe_machine(jax.devices()[1])
    assert first["versions"].keys() >= {"jax", "jaxlib"} and first["device"] == "cpu"
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_x=true")
    monkeypatch.setattr("pretrain.kernels.trials.trial_memory.CODE", ("kernels",))
    second = describe_machine(jax.devices()[0])
    assert first["flags"] != second["flags"] and first["code"] != second["code"]
