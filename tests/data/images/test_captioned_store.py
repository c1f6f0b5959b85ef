"""Stores of pictures with captions: words and visual tokens in one vocabulary, and bad sources."""

import hashlib
import json

import numpy as np
import pytest

from data.images.captioned_store import CaptionedStore, CaptionRequest, write_captioned_store
from data.images.codebook import Codebook, Grid, fit_centroids
from data.saved_encoding import load_encoding
from data.store.kinds import open_source
from tests.captioned_images import write_captioned_images

GRID = Grid(size=16, patch=4, channels=1)


@pytest.fixture
def pairs(tmp_path):
    return write_captioned_images(tmp_path / "pairs")


def write(tmp_path, output="store", clusters=24, grid=GRID, held_out=0.3):
    request = CaptionRequest(str(tmp_path / "pairs"), grid, clusters, held_out)
    return write_captioned_store(request, tmp_path / output)


def read_documents(store, split):
    """Return [(ids of words, ids of visual tokens)]."""
    part = store.open_split(split)
    parts = np.split(np.asarray(part.tokens), np.asarray(part.sentence_starts)[1:-1])
    return [(a.tolist(), b.tolist()) for a, b in zip(parts[::2], parts[1::2], strict=True)]


def find_splits(tmp_path, count):
    """Return the split of each picture, by a hash of its bytes."""
    files = [(tmp_path / "pairs" / f"{i:03}.png").read_bytes() for i in range(count)]
    shares = [int.from_bytes(hashlib.sha256(file).digest()[:4], "little") / 2**32 for file in files]
    return ["heldout" if share < 0.3 else "train" for share in shares]


def test_documents_are_the_words_and_the_nearest_centroids(pairs, tmp_path):
    splits, long = find_splits(tmp_path, 60), "a disk " * 9
    first = splits.index("train")
    change_line(tmp_path / "pairs", first, caption=long)
    pairs[first] = pairs[first][0], long
    store = write(tmp_path)
    vocabulary = store.encoding
    centroids = vocabulary.codebook.centroids_KN.astype(int)
    seen = {split: read_documents(store, split) for split in ("train", "heldout")}
    assert len(seen["train"]) + len(seen["heldout"]) == 60 and len(seen["heldout"]) > 5
    expected = {"train": [], "heldout": []}
    for i, (pixels, caption) in enumerate(pairs):
        words = caption.lower().replace(",", " ,").replace(".", " .").split()
        numbers = []
        for y in range(0, 16, 4):
            for x in range(0, 16, 4):
                patch = pixels[y : y + 4, x : x + 4].ravel().astype(int)
                numbers.append(int(((centroids - patch) ** 2).sum(axis=1).argmin()))
        pieces = [*words, *(f"[patch{number}]" for number in numbers)]
        expected[splits[i]].append(pieces)
    for split, documents in expected.items():
        found = [[vocabulary.pieces[i] for i in (*a, *b)] for a, b in seen[split]]
        assert found == documents
        names = (store.folder / split / "images.txt").read_text().splitlines()
        assert len(names) == len(documents)
    longest = max(len(pieces) for pieces in (*expected["train"], *expected["heldout"]))
    assert store.manifest["captions"]["longest"] == longest
    assert vocabulary.pieces[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert vocabulary.special.sum() == 6 and vocabulary.first_patch == vocabulary.size - 24
    assert vocabulary.encode("[patch3]") != [vocabulary.first_patch + 3]


def test_a_store_is_the_same_twice_and_its_encoding_is_that_of_a_workdir(pairs, tmp_path):
    store = write(tmp_path)
    again, other = write(tmp_path, "again"), write(tmp_path, "other", clusters=23)
    assert store.fingerprint == again.fingerprint
    assert store.encoding.fingerprint != other.encoding.fingerprint
    assert isinstance(open_source(tmp_path / "store"), CaptionedStore)
    for name, save in store.encoding.artefacts.items():
        save(tmp_path / "workdir" / name)
    assert load_encoding(tmp_path / "workdir") == store.encoding
    own = store.encoding.codebook
    changed = Codebook(own.grid, own.centroids_KN ^ np.uint8(1))
    for codebook in (other.encoding.codebook, changed):
        codebook.save(tmp_path / "workdir" / "codebook")
        check_refused(tmp_path / "workdir")


def check_refused(workdir):
    with pytest.raises(ValueError, match="codebook: the vocabulary belongs to other centroids"):
        load_encoding(workdir)


def test_centroids_are_those_of_the_training_pictures(pairs, tmp_path):
    store, splits = write(tmp_path), find_splits(tmp_path, 60)
    pixels = np.stack([one for (one, _), split in zip(pairs, splits) if split == "train"])
    patches = GRID.cut_patches(pixels[..., None]).reshape(-1, 16)
    assert np.array_equal(store.encoding.codebook.centroids_KN, fit_centroids(patches, 24))


def change_line(folder, number=3, **changes):
    path = folder / "captions.jsonl"
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | changes)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda root: change_line(root, image="x.png"), r"captions.jsonl:4: .*x.png: no such image"),
        (lambda root: (root / "003.png").write_bytes(b""), r"jsonl:4: .*003.png: the file is empty"),
        (lambda root: (root / "003.png").write_bytes((root / "003.png").read_bytes()[:60]),
         r"jsonl:4: .*003.png: a damaged image"),
        (lambda root: change_line(root, caption="  "), r"jsonl:4: caption is '  '"),
        (lambda root: change_line(root, caption="\u200b"), r"jsonl:4: no words in the caption"),
        (lambda root: change_line(root, caption="a \ud800"), r"jsonl:4: half of a character"),
        (lambda root: change_line(root, caption=None), r"jsonl:4: caption is None"),
        (lambda root: change_line(root, image=""), r"jsonl:4: image is ''"),
        (lambda root: change_line(root, caption="a " * 1001), "a caption of 2,002 characters"),
        (lambda root: change_line(root, image="../a.png"), "give the path from there"),
        (lambda root: change_line(root, image="/a.png"), "give the path from there"),
        (lambda root: (root / "captions.jsonl").write_text("\n"), "has no captions"),
        (lambda root: (root / "captions.jsonl").write_text("[]\n"), "expected a JSON object"),
    ],
)  # fmt: skip
def test_bad_sources_are_named(pairs, tmp_path, break_it, message):
    break_it(tmp_path / "pairs")
    with pytest.raises(ValueError, match=message):
        write(tmp_path)
    assert not (tmp_path / "store").exists()


def test_bad_requests_are_refused(pairs, tmp_path):
    with pytest.raises(ValueError, match="--clusters 4,000: .* distinct patches"):
        write(tmp_path, clusters=4000)
    with pytest.raises(ValueError, match="none is in the heldout split"):
        write(tmp_path, held_out=1e-6)
    with pytest.raises(ValueError, match="--held-out 1.0: a share"):
        write(tmp_path, held_out=1.0)
    (tmp_path / "pairs" / "captions.jsonl").unlink()
    with pytest.raises(
        FileNotFoundError, match=r'captions.jsonl: no such file; a line of it is {"'
    ):
        write(tmp_path)
    (tmp_path / "store").mkdir()
    with pytest.raises(FileExistsError, match="add --overwrite"):
        write(tmp_path)


def test_images_of_any_size_are_resized(pairs, tmp_path):
    store = write(tmp_path, grid=Grid(size=8, patch=4, channels=3))
    words, numbers = read_documents(store, "train")[0]
    assert len(numbers) == 4 and min(numbers) >= store.encoding.first_patch > max(words)


def test_damaged_documents_are_skipped(tmp_path):
    write_captioned_images(tmp_path / "pairs", count=300)
    store = write(tmp_path)
    path = store.folder / "train" / "tokens.bin"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    opened = open_source(tmp_path / "store")
    with pytest.raises(ValueError, match="tokens.bin"):
        opened.verify_or_salvage("refuse")
    remaining = opened.verify_or_salvage("skip")
    assert isinstance(remaining, CaptionedStore)
    lost = remaining.skipped_documents["train"].tolist()
    assert 0 < len(lost) < 150
    assert read_documents(remaining, "train") == [
        one for i, one in enumerate(read_documents(store, "train")) if i not in lost
    ]
