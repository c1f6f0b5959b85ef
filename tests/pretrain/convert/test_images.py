"""Models of images as Hugging Face folders: the image processor, the classes, and hostile files."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from data.images.encoding import ImageEncoding
from data.images.image_files import make_pixels, resize_and_crop
from models import build
from models.config.base import Pixels
from models.config.deit import DeitConfig
from models.config.vit import VitConfig
from pretrain.convert.encodings.files import make_encoding
from pretrain.convert.encodings.processor import describe_processor, read_crop_ratio
from pretrain.convert.read_write import find_converter, open_model, write_model
from pretrain.convert.safe_folder import FolderError
from pretrain.publish.cards.image_card import list_loading_lines
from pretrain.publish.cards.loading_lines import find_auto_class
from pretrain.publish.jax_folder import write_jax_folder
from tests import given
from tests.models.image_peers import draw_params, draw_pixels
from tests.pinned import check_pinned, hash_files

SIZES = dict(image_size=28, patch_size=7, width=24, depth=2, num_heads=3, mlp=40, classes=4)
STATISTICS = dict(pixels=Pixels(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25)))
MODELS = {
    "vit": VitConfig(**SIZES, **STATISTICS),
    "deit": DeitConfig(**SIZES, **STATISTICS, qkv_bias=False),
    "brightness": VitConfig(**SIZES, pixels=Pixels(mean=(0.1,), std=(0.3,))),
}
CLASSES = ImageEncoding(("a cat", "größe", "LABEL"))
NAMES = ("a cat", "größe", "LABEL", "LABEL_3")


@pytest.fixture(scope="module", params=MODELS)
def exported(request, tmp_path_factory):
    """Return (folder, configuration, parameters) of an export."""
    config = MODELS[request.param]
    _, params = draw_params(config)
    folder = tmp_path_factory.mktemp("exports") / request.param
    write_model(folder, config, params, CLASSES)
    return folder, config, params


@pytest.fixture
def vit_folder(tmp_path):
    """Return a new export, whose files a test may damage."""
    config = MODELS["vit"]
    write_model(tmp_path / "vit", config, draw_params(config)[1], CLASSES)
    return tmp_path / "vit"


def edit(path, **entries):
    """Change entries of a JSON file; None removes one."""
    content = json.loads(path.read_text()) | entries
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def load(opened):
    """Return what `load_params` returns, where a missing head is random."""
    model, c = build(opened.config), opened.config

    def init():
        pixels = jnp.zeros((1, c.image_size, c.image_size, c.channels), jnp.uint8)
        return model.init(jax.random.key(0), pixels)["params"]

    return opened.load_params(opened.config, init)


@pytest.mark.held_by(1)
def test_an_export_is_imported_as_it_was(exported):
    folder, config, params = exported
    opened = open_model(folder)
    assert opened.config == config
    assert opened.encoding == ImageEncoding(NAMES)
    found, missing, unused = load(opened)
    assert missing == unused == ()
    jax.tree.map(np.testing.assert_array_equal, found, params)
    write_model(folder.parent / "again", opened.config, found, opened.encoding, overwrite=True)
    for path in folder.iterdir():
        assert path.read_bytes() == (folder.parent / "again" / path.name).read_bytes(), path.name


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", ["vit", "deit"])
def test_an_export_is_unchanged(tmp_path, name):
    """Byte for byte, of weights that are given under the names of transformers."""
    config = MODELS[name]
    leaves, tree = jax.tree.flatten(draw_params(config)[1])
    export = find_converter(config).to_hf
    filled = given.fill_tensors(
        [leaf.shape for leaf in leaves], lambda arrays: export(config, tree.unflatten(arrays))
    )
    write_model(tmp_path / "out", config, tree.unflatten(filled), CLASSES)
    check_pinned("export", name, hash_files(tmp_path / "out"))


@pytest.mark.more
def test_transformers_reads_the_processor_and_computes_the_same(exported):
    """Of an image file that is resized and cropped; the resized image is Pillow's."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    import transformers

    folder, config, params = exported
    pixels = draw_pixels(dataclasses.replace(config, image_size=56), 1)[0]
    image = Image.fromarray(pixels.squeeze()[:, :48])
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    assert (
        type(model).__name__ == json.loads((folder / "config.json").read_text())["architectures"][0]
    )
    assert list(model.config.id2label.values()) == list(NAMES)
    read = processor(image, return_tensors="pt")["pixel_values"]
    resized = np.asarray(image.resize((32, round(56 * 32 / 48)), Image.Resampling.BICUBIC))
    top = next(
        top
        for top in (4, 5)  # of 37 rows, 28 are read
        if np.allclose(
            read[0].numpy()[0],
            (
                resized[top : top + 28, 2:30].reshape(28, 28, -1)[..., 0] / 255
                - config.pixels.mean[0]
            )
            / config.pixels.std[0],
            atol=1e-5,
        )
    )
    ours = resized[top : top + 28, 2:30].reshape(1, 28, 28, config.channels)
    with torch.no_grad():
        expected = model(read).logits.numpy()
    found = build(config).apply({"params": params}, ours)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.more
def test_the_lines_of_the_card_name_a_class(exported, tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    folder, config, _ = exported
    monkeypatch.chdir(tmp_path)
    Image.fromarray(draw_pixels(VitConfig(), 1)[0]).save("image.png")
    exec("\n".join(list_loading_lines(config, find_auto_class(config), str(folder))), {})
    assert capsys.readouterr().out.strip() in NAMES


def test_a_bare_encoder_has_a_random_head(vit_folder):
    """As the file of a ViTModel: without prefix and head, with a pooler."""
    from safetensors.numpy import load_file, save_file

    tensors = load_file(vit_folder / "model.safetensors")
    bare = {name[4:]: tensor for name, tensor in tensors.items() if name.startswith("vit.")}
    bare["pooler.dense.weight"] = np.ones((24, 24), np.float32)
    save_file(bare, vit_folder / "model.safetensors")
    edit(vit_folder / "config.json", architectures=["ViTModel"])
    _, missing, unused = load(open_model(vit_folder))
    assert missing == ("classifier.bias", "classifier.weight")
    assert unused == ("vit.pooler.dense.weight",)


@pytest.mark.held_by(5)
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"image_mean": [0.5, 0.5]}, "image_mean is .* expected 3 numbers, one a channel"),
        ({"image_mean": "0.5"}, "image_mean is '0.5'; expected 3 numbers"),
        ({"image_std": [0.5, 0.5, math.nan]}, "NaN is not a number of JSON"),
        ({"image_std": [0.5, -1e300, 1]}, "image_std is .* expected numbers from"),
        ({"image_std": [0.5, True, 1]}, "image_std is .* expected numbers from"),
        ({"image_std": [0.5, 10**400, 1]}, "image_std is .* expected numbers from"),
        ({"image_std": [0.5, 0, 1]}, r"std is \(0.5, 0.0, 1.0\); all values must be positive"),
        ({"image_std": None}, "image_std is None; expected 3 numbers"),
        ({"do_rescale": False}, "do_rescale is false"),
        ({"rescale_factor": 1.0}, "rescale_factor is 1.0; expected 1 / 255"),
        ({"rescale_factor": "x"}, "rescale_factor is 'x'"),
        ({"rescale_factor": 10**400}, "rescale_factor is 1000"),
        ({"crop_size": {"height": 32, "width": 28}}, "image_size in config.json is 28: the file"),
        ({"crop_size": {"height": "28"}}, "crop_size is .* expected a height and a width"),
        ({"crop_size": 10**30}, "crop_size is 1000.* expected a height and a width"),
        ({"crop_size": []}, "crop_size is .*; expected a height and a width"),
        ({"do_resize": False}, "do_resize is false, and images are resized here"),
        ({"resample": 6}, "resample is 6; expected 0 to 5"),
        ({"resample": True}, "resample is True; expected 0 to 5"),
        ({"resample": [3]}, r"resample is \[3\]; expected 0 to 5"),
        ({"do_center_crop": False}, "size is .* image_size in config.json is 28"),
    ],
)
def test_a_hostile_processor_is_refused(vit_folder, entries, message):
    edit(vit_folder / "preprocessor_config.json", **entries)
    with pytest.raises(FolderError, match=message) as caught:
        open_model(vit_folder)
    assert str(caught.value).startswith(f"{vit_folder}/preprocessor_config.json: ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("number", "found"), [(2, "2 (bilinear)"), (1, "1 (lanczos)"), (None, "absent"), (3, "")]
)
def test_another_filter_than_ours_is_reported(vit_folder, number, found):
    """google/vit-base-patch16-224 has the bilinear one."""
    edit(vit_folder / "preprocessor_config.json", resample=number)
    lines = []
    assert open_model(vit_folder, lines.append).config == MODELS["vit"]
    path = vit_folder / "preprocessor_config.json"
    assert [line.partition(";")[0] for line in lines] == (
        [f"{path}: resample is {found}"] if found else []
    )


@pytest.mark.parametrize("content", ["", "[]", '{"a": ', "\x00", "[" * 100_000])
def test_a_damaged_processor_is_refused(vit_folder, content):
    (vit_folder / "preprocessor_config.json").write_text(content)
    with pytest.raises(FolderError, match="preprocessor_config.json"):
        open_model(vit_folder)


def test_a_missing_processor_is_named(vit_folder):
    (vit_folder / "preprocessor_config.json").unlink()
    with pytest.raises(FolderError, match="no preprocessor_config.json: put the model's own file"):
        open_model(vit_folder)


@pytest.mark.parametrize(
    "entries",
    [
        {"do_center_crop": None, "size": 28},  # as older versions write it
        {"do_center_crop": None, "size": {"height": 28, "width": 28}},
        {"do_center_crop": None, "size": {"shortest_edge": 28}},
        {"do_normalize": False},
        {"image_mean": 0.5, "image_std": 1},
    ],
)
def test_other_forms_of_a_processor_are_read(vit_folder, entries):
    edit(vit_folder / "preprocessor_config.json", **entries)
    config = open_model(vit_folder).config
    expected = MODELS["vit"]
    if "do_normalize" in entries:
        expected = dataclasses.replace(expected, pixels=Pixels(mean=(0.0,) * 3, std=(1.0,) * 3))
    if "image_mean" in entries:
        expected = dataclasses.replace(expected, pixels=Pixels(mean=(0.5,) * 3, std=(1.0,) * 3))
    assert config == expected


@pytest.mark.parametrize(
    ("entries", "crop_ratio"),
    [
        ({"do_center_crop": False, "size": {"height": 28, "width": 28}}, None),
        ({"do_center_crop": None, "size": 28}, None),
        ({"do_center_crop": None, "size": {"shortest_edge": 28}}, 1.0),
        ({"do_center_crop": True, "size": {"shortest_edge": 32}}, 0.875),
    ],
)
def test_images_are_framed_as_the_processor_frames_them(vit_folder, entries, crop_ratio):
    edit(vit_folder / "preprocessor_config.json", **entries)
    opened = open_model(vit_folder)
    assert opened.crop_ratio == crop_ratio
    content = describe_processor(opened.config, "ViTImageProcessor", crop_ratio)
    assert read_crop_ratio(content, opened.config) == crop_ratio


@pytest.mark.more
def test_a_squashed_image_has_the_pixels_of_transformers(vit_folder):
    pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    import transformers

    square = {"height": 28, "width": 28}
    edit(vit_folder / "preprocessor_config.json", do_center_crop=False, size=square)
    config = open_model(vit_folder).config
    noise = np.random.default_rng(2).integers(0, 255, (6, 5, 3), np.uint8)
    image = Image.fromarray(noise).resize((37, 53), Image.Resampling.BICUBIC)
    processor = transformers.AutoImageProcessor.from_pretrained(vit_folder)
    read = processor(image, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
    own = make_pixels(resize_and_crop(image, 28, None)) / 255
    assert np.abs(read - (own - config.pixels.mean) / config.pixels.std).max() < 0.05
    cropped = make_pixels(resize_and_crop(image, 28, 1.0)) / 255
    assert np.abs(read - (cropped - config.pixels.mean) / config.pixels.std).max() > 0.5


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"id2label": {"0": "x", "2": "y"}}, "id2label has the numbers 0, 2; expected 0 to 1"),
        ({"id2label": ["x"]}, "id2label is .* expected an object"),
        ({"id2label": {"0": "x" * 300, "1": ""}}, "id2label: a class is named"),
        ({"num_channels": 10**9}, "num_channels is 1000000000; 1 to 100 are read"),
        ({"num_channels": 0}, "num_channels is 0"),
        ({"patch_size": 5}, "patch_size=5 does not divide image_size=28"),
        ({"patch_size": [16, 16]}, "patch_size is .* expected int"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        (
            {"architectures": ["ViTForMaskedImageModeling"]},
            "ViTForMaskedImageModeling: its decoder",
        ),
    ],
)
def test_settings_that_are_not_supported_are_named(vit_folder, entries, message):
    edit(vit_folder / "config.json", **entries)
    with pytest.raises(FolderError, match=message):
        open_model(vit_folder)


def test_an_image_size_of_other_positions_is_refused(vit_folder):
    """Also a size so large that an array of its positions could not exist."""
    for size in (56, 65_534):
        edit(vit_folder / "config.json", image_size=size)
        sizes = {"crop_size": size, "size": {"shortest_edge": size}}
        edit(vit_folder / "preprocessor_config.json", **sizes)
        with pytest.raises(FolderError, match=r"position_embeddings has shape \[1, 17, 24\]"):
            load(open_model(vit_folder))


def test_a_deit_of_one_head_is_refused(tmp_path):
    write_model(tmp_path / "deit", MODELS["deit"], draw_params(MODELS["deit"])[1], CLASSES)
    edit(tmp_path / "deit/config.json", architectures=["DeiTForImageClassification"])
    with pytest.raises(FolderError, match="its one head reads the class token"):
        open_model(tmp_path / "deit")


def test_what_transformers_lacks_is_not_exported(tmp_path):
    config = dataclasses.replace(MODELS["vit"], pooling="mean")
    with pytest.raises(ValueError, match=r"model.pooling=mean cannot be exported"):
        write_model(tmp_path / "out", config, draw_params(config)[1], CLASSES)
    few = dataclasses.replace(MODELS["vit"], classes=2)
    with pytest.raises(ValueError, match=r"the images have 3 classes, the model only 2 scores"):
        write_model(tmp_path / "out", few, draw_params(few)[1], CLASSES)
    assert not (tmp_path / "out").exists()


def test_classes_of_one_name_are_numbered():
    """ImageNet has two cranes, a bird and a machine."""
    found = make_encoding(("crane", "cat", "crane", "crane (2)", "crane"))
    assert found.classes == ("crane", "cat", "crane (2)'", "crane (2)", "crane (4)")


def test_a_folder_for_jax_has_the_classes_and_a_program(tmp_path):
    config = MODELS["brightness"]
    model, params = draw_params(config)
    inputs = {"pixels": draw_pixels(config, 1)}
    sizes = write_jax_folder(tmp_path / "jax", config, params, CLASSES, inputs)
    assert {"classes.json", "preprocessor_config.json", "program.bin"} <= sizes.keys()
    program = jax.export.deserialize((tmp_path / "jax/program.bin").read_bytes())
    with np.load(tmp_path / "jax/example.npz") as example:
        assert example["pixels"].dtype == np.uint8 and example["pixels"].max() > 200
    pixels = draw_pixels(config, 5)
    np.testing.assert_allclose(
        program.call(params, {"pixels": pixels}),
        model.apply({"params": params}, pixels),
        atol=1e-5,
    )
    write_jax_folder(tmp_path / "jax", config, params, CLASSES, inputs, overwrite=True)
