"""A T5 that T5X or Flax wrote is imported with equal parameters; what is damaged is refused."""

import json
import shutil

import flax.serialization
import jax
import msgpack
import numpy as np
import pytest
import tensorstore

from data.vocabulary.load import train_vocabulary
from models import build
from pretrain.__main__ import main
from pretrain.api.importing import import_folder
from pretrain.convert.pretrained import Converter
from pretrain.convert.read_write import write_model
from pretrain.families import find_family
from pretrain.training.state import init_params
from pretrain.workdir.trained import open_trained
from tests.pretrain.conftest import RUNS, make_texts

T5X_NAMES = {  # {name in `transformers`: name in T5X} of a layer
    "encoder": {
        "0.SelfAttention": "attention",
        "0.layer_norm": "pre_attention_layer_norm.scale",
        "1.DenseReluDense": "mlp",
        "1.layer_norm": "pre_mlp_layer_norm.scale",
    },
    "decoder": {
        "0.SelfAttention": "self_attention",
        "0.layer_norm": "pre_self_attention_layer_norm.scale",
        "1.EncDecAttention": "encoder_decoder_attention",
        "1.layer_norm": "pre_cross_attention_layer_norm.scale",
        "2.DenseReluDense": "mlp",
        "2.layer_norm": "pre_mlp_layer_norm.scale",
    },
}
KERNELS = {"q": "query", "k": "key", "v": "value", "o": "out"}


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(make_texts(600), 128, layout="t5")


@pytest.fixture(scope="module", params=["t5", "t5_gated"])
def model(request):
    """Return (configuration, parameters, tensors by the names of `transformers`)."""
    run = RUNS[request.param]
    params = jax.jit(lambda: init_params(build(run.model), run.data.objective, 3))()
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(np.float32), params)
    tensors = Converter(find_family(run.model)).to_hf(run.model, params)
    return run.model, params, {name: np.asarray(value) for name, value in tensors.items()}


def name_t5x_arrays(tensors):
    """Return {name in T5X: array} of a T5, a layer at a time."""
    found = {}
    for name, value in tensors.items():
        stack, *rest = name.split(".")
        if name == "shared.weight":
            found["token_embedder.embedding"] = value
        elif name == "lm_head.weight":
            found["decoder.logits_dense.kernel"] = value.T
        elif rest[0] == "final_layer_norm":
            found[f"{stack}.{stack}_norm.scale"] = value
        elif "relative_attention_bias" in name:
            found[f"{stack}.relpos_bias.rel_embedding"] = value.T
        elif rest[0] == "block":
            _, layer, _, number, part, *last = rest
            ours = f"{stack}.layers_{layer}.{T5X_NAMES[stack][f'{number}.{part}']}"
            kernel = f"{ours}.{KERNELS.get(last[0], last[0])}.kernel"
            found[ours if part == "layer_norm" else kernel] = (
                value if part == "layer_norm" else value.T
            )
    return found


def scan_layers(arrays, config):
    """Return the arrays as a model that is scanned over its layers has them: the second axis."""
    found = {}
    for stack, depth in (("encoder", config.depth), ("decoder", config.decoder_depth)):
        first = f"{stack}.layers_0."
        for name in [name for name in arrays if name.startswith(first)]:
            part = name.removeprefix(first)
            layers = [arrays[f"{stack}.layers_{i}.{part}"] for i in range(depth)]
            if "attention." in part:
                H, K = config.num_heads, config.head_width
                shape = (H, K, -1) if part.endswith("out.kernel") else (-1, H, K)
                layers = [layer.reshape(shape) for layer in layers]
            found[f"{stack}.{stack}.{part}"] = np.stack(layers, axis=1)
    return found | {name: array for name, array in arrays.items() if ".layers_" not in name}


def write_t5x(folder, arrays, dtype=None, compressor={"id": "gzip", "level": 1}):  # noqa: B006
    """Write a checkpoint as T5X does: zarr arrays by TensorStore, and a msgpack of the rest."""
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        array = array if dtype is None else array.astype(dtype)
        chunks = [max(1, -(-size // 2)) for size in array.shape]
        tensorstore.open(
            {
                "driver": "zarr",
                "kvstore": {"driver": "file", "path": str(folder / f"target.{name}")},
                "metadata": {"chunks": chunks, "compressor": compressor},
            },
            create=True,
            dtype=tensorstore.dtype(array.dtype),
            shape=array.shape,
        ).result().write(array).result()
    (folder / "checkpoint").write_bytes(flax.serialization.msgpack_serialize({"version": 3}))
    return folder


def check_equal(workdir, config, params):
    """Check that a run has these parameters, and their logits."""
    found = open_trained(str(workdir))
    jax.tree.map(
        np.testing.assert_array_equal, jax.device_get(found.params), jax.device_get(params)
    )
    ids = np.arange(24, dtype=np.int32).reshape(2, 12) % 100
    inputs = {"encoder_token_ids": ids, "encoder_attention_mask": ids >= 0, "labels": ids[:, :7]}
    logits = [
        build(each).apply({"params": given}, **inputs)
        for each, given in ((config, params), (found.run.model, found.params))
    ]
    np.testing.assert_allclose(*logits, atol=1e-6)
    names = ("vocab", "width", "depth", "decoder_depth", "num_heads", "head_width", "mlp")
    for name in (*names, "gated", "tied", "buckets"):
        assert getattr(found.run.model, name) == getattr(config, name), name


@pytest.mark.held_by(2)
@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("compressor", [{"id": "gzip", "level": 1}, None])
def test_a_checkpoint_of_t5x_is_imported(model, vocabulary, tmp_path, scanned, compressor, capsys):
    config, params, tensors = model
    arrays = name_t5x_arrays(tensors)
    arrays = scan_layers(arrays, config) if scanned else arrays
    folder = write_t5x(tmp_path / "checkpoint_7", arrays, compressor=compressor)
    vocabulary.save(tmp_path / "vocabulary")
    argv = ["import", str(folder), "--vocabulary", str(tmp_path / "vocabulary")]
    assert main([*argv, "--workdir", str(tmp_path / "run")]) == 0
    assert "T5ForConditionalGeneration from" in capsys.readouterr().out
    check_equal(tmp_path / "run", config, params)


def test_sixteen_bits_are_read(model, vocabulary, tmp_path):
    config, _, tensors = model
    folder = write_t5x(tmp_path / "c", name_t5x_arrays(tensors), tensorstore.bfloat16.numpy_dtype)
    vocabulary.save(tmp_path / "v")
    opened = import_folder(folder, tmp_path / "run", vocabulary=tmp_path / "v").opened
    assert opened.tensors.list_formats() == ("BF16",)


def test_weights_of_flax_are_imported(model, vocabulary, tmp_path):
    config, params, tensors = model
    write_model(tmp_path / "hf", config, params, vocabulary)
    tree = {}
    for name, value in tensors.items():
        *path, last = name.split(".")
        is_norm = path[-1].endswith("layer_norm")
        is_table = path[-1] in ("relative_attention_bias", "shared")
        last = "weight" if is_norm else "embedding" if is_table else "kernel"
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value if is_norm or is_table else value.T
    (tmp_path / "hf" / "model.safetensors").unlink()
    weights = tmp_path / "hf" / "flax_model.msgpack"
    weights.write_bytes(flax.serialization.msgpack_serialize(tree))
    import_folder(tmp_path / "hf", tmp_path / "run")
    check_equal(tmp_path / "run", config, params)

    large = {"__msgpack_chunked_array__": True, "shape": {"0": 128, "1": 32}}
    halves = np.split(tensors["shared.weight"].ravel(), 2)
    tree["shared"]["embedding"] = large | {"chunks": dict(zip("01", halves))}
    weights.write_bytes(flax.serialization.msgpack_serialize(tree))
    import_folder(tmp_path / "hf", tmp_path / "again")
    check_equal(tmp_path / "again", config, params)


def spoil_array(folder, **changes):
    path = folder / "target.encoder.encoder_norm.scale" / ".zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.held_by(5)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: shutil.rmtree(f / "target.decoder.decoder_norm.scale"), "has no array target.decoder.decoder_norm.scale"),
        (lambda f: shutil.rmtree(f / "target.token_embedder.embedding"), "has no array target.token_embedder.embedding"),
        (lambda f: (f / "target.encoder.encoder_norm.scale" / "0").unlink(), "scale/0: is missing"),
        (lambda f: (f / "target.encoder.encoder_norm.scale" / "0").write_bytes(b"\x1f\x8b"), "cut off"),
        (lambda f: (f / "target.encoder.encoder_norm.scale" / "0").write_bytes(b"xx"), "incorrect header"),
        (lambda f: spoil_array(f, dtype="|O"), "stored as '|O'"),
        (lambda f: spoil_array(f, shape=[1 << 40]), "a size that is not from 0"),
        (lambda f: spoil_array(f, chunks=[1 << 24]), "larger than the array"),
        (lambda f: spoil_array(f, chunks=[0]), "do not fit the shape"),
        (lambda f: spoil_array(f, compressor={"id": "blosc"}), "its compressor is 'blosc'"),
        (lambda f: spoil_array(f, order="F"), "its order is not C"),
        (lambda f: (f / "target.encoder.side.scale").mkdir(), "side.scale: no .zarray"),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_refused(model, vocabulary, tmp_path, spoil, message, capsys):
    folder = write_t5x(tmp_path / "c", name_t5x_arrays(model[2]))
    vocabulary.save(tmp_path / "v")
    spoil(folder)
    argv = ["import", str(folder), "--vocabulary", str(tmp_path / "v"), "--workdir"]
    assert main([*argv, str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "run").exists()


def test_another_model_and_a_missing_vocabulary_are_refused(model, vocabulary, tmp_path, capsys):
    arrays = name_t5x_arrays(model[2])
    folder = write_t5x(tmp_path / "a", arrays)
    argv = ["import", str(folder), "--workdir", str(tmp_path / "run")]
    assert main(argv) == 2
    assert "by --vocabulary" in capsys.readouterr().err
    vocabulary.save(tmp_path / "v")
    argv += ["--vocabulary", str(tmp_path / "v")]
    other = write_t5x(tmp_path / "b", arrays | {"encoder.side.scale": np.ones(3, np.float32)})
    assert main(["import", str(other), *argv[2:]]) == 2
    assert "target.encoder.side.scale, which a T5Config does not have" in capsys.readouterr().err
    train_vocabulary(make_texts(600), 138, layout="t5").save(tmp_path / "large")
    assert main([*argv[:-1], str(tmp_path / "large")]) == 2
    assert "has 138 ids, and the model 128 embeddings" in capsys.readouterr().err
    write_model(tmp_path / "hf", model[0], model[1], vocabulary)
    assert main(["import", str(tmp_path / "hf"), *argv[2:]]) == 2
    assert "--vocabulary is for a checkpoint of zarr arrays" in capsys.readouterr().err


def pack(shape, dtype, data):
    return msgpack.ExtType(1, msgpack.packb([shape, dtype, data]))


@pytest.mark.held_by(5)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a whole msgpack file"),
        (b"\xdf\xff\xff\xff\xff", "not a whole msgpack file"),
        (b"\x91" * 100_000, "not a whole msgpack file"),
        (msgpack.packb({"a": 3}), "a is int, not an array"),
        (msgpack.packb({"a": msgpack.ExtType(2, b"")}), "extension type 2"),
        (msgpack.packb({"a": pack([2], b"object", b"12345678")}), "stored as 'object'"),
        (msgpack.packb({"a": pack([1 << 40], b"float32", b"")}), "not from 0 to"),
        (msgpack.packb({"a": pack([3], b"float32", b"1234")}), "has 4 bytes"),
        (msgpack.packb({"a": {"__msgpack_chunked_array__": True}}), "its parts are no arrays"),
    ],
)
def test_a_damaged_file_of_flax_is_refused(model, vocabulary, tmp_path, content, message, capsys):
    write_model(tmp_path / "hf", model[0], model[1], vocabulary)
    (tmp_path / "hf" / "model.safetensors").unlink()
    (tmp_path / "hf" / "flax_model.msgpack").write_bytes(content)
    assert main(["import", str(tmp_path / "hf"), "--workdir", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not (tmp_path / "run").exists()
