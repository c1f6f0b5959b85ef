import collections
import json
import pathlib
import shutil
import sysconfig

import numpy as np
import pytest
from etils.epath import backend

from data.corpus import builtin, sources
from data.examples import labelled_examples
from tests.data.corpus.reading import json_lines, read_documents, write_file
from tests.data.corpus.test_urls import FILES, TEXTS, get_options
from tests.local_bucket import Bucket

TEXT = "one\nline\n\n \t\ntwo\n\n\nthree, the last"


class TensorFlowBucket(Bucket):
    """A bucket whose files open as TensorFlow's do, whose readline takes no limit."""

    def __init__(self, root):
        super().__init__(root)
        gfile = pytest.importorskip("tensorflow").io.gfile
        self.open = lambda path, mode: gfile.GFile(
            str(path).replace("gs://bucket", str(root)), mode
        )


@pytest.mark.slow
def test_files_in_a_bucket(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "tf_backend", TensorFlowBucket(tmp_path))
    (tmp_path / "sub").mkdir()
    write_file(tmp_path / "a.txt", TEXT)
    write_file(tmp_path / "sub" / "b.jsonl.gz", json_lines("eins", "zwei"))
    assert read_documents("gs://bucket/a.txt", document="block", size=5) == [
        "one\nline",
        "two",
        "three, the last",
    ]
    assert read_documents("gs://bucket") == [TEXT, "eins", "zwei"]
    assert read_documents("gs://bucket/*/*.gz") == ["eins", "zwei"]
    for name, content in FILES.items():  # a file of each form
        (tmp_path / name).write_bytes(content)
        documents = read_documents(f"gs://bucket/{name}", len(content) // 3, **get_options(name))
        assert documents == TEXTS
    with pytest.raises(FileNotFoundError, match="gs://bucket/c.txt: no such file"):
        read_documents("gs://bucket/c.txt")


# ---- TensorFlow datasets


@pytest.fixture(scope="module", params=["tfrecord", "array_record"])
def dataset(request, tmp_path_factory):
    """Write a dataset of 60 examples in three files, in a folder where TFDS looks."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class Verses(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        """Numbered verses."""

        VERSION = tfds.core.Version("1.2.0")
        RELEASE_NOTES = {"1.2.0": "first"}

        def _info(self):
            texts = {"verse": tfds.features.Text(), "answer": tfds.features.Text()}
            features = tfds.features.FeaturesDict(
                texts | {"number": np.int64, "mood": tfds.features.ClassLabel(names=["glad", "a"])}
            )
            return tfds.core.DatasetInfo(builder=self, description="verses", features=features)

        def _split_generators(self, manager):
            return {"train": self._generate_examples(60), "test": self._generate_examples(5)}

        def _generate_examples(self, count):
            for i in range(count):
                yield (
                    i,
                    {
                        "verse": f"verse {i} of {count} é",
                        "answer": f"a\n{i}" if count > 5 else "",
                        "number": i,
                        "mood": i % 2 if count > 5 else -1,
                    },
                )

    folder = tmp_path_factory.mktemp("tfds")
    builder = Verses(data_dir=folder, file_format=request.param)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.core.constants, "DATA_DIR", str(folder))
        yield f"tfds:{builder.name}"


@pytest.mark.slow
def test_tensorflow_datasets(dataset):
    train = read_documents(dataset, field="verse")
    assert sorted(train) == sorted(f"verse {i} of 60 é" for i in range(60))
    assert read_documents(f"{dataset}:train", field="verse") == train
    assert read_documents(f"{dataset}:1.2.0:train[10:25]", field="verse") == train[10:25]
    assert read_documents(f"{dataset}:train[:50%]+test", field="verse") == train[
        :30
    ] + read_documents(f"{dataset}:test", field="verse")
    pieces = list(sources.split_source(sources.resolve_source(dataset, field="verse"), 1, None))
    assert len(pieces) == 3 and pieces[0].stop == pieces[1].start  # one for each file


@pytest.mark.slow
def test_pairs_of_tensorflow_datasets(dataset):
    verses = read_documents(f"{dataset}:train[3:9]", field="verse")
    pairs = read_documents(f"{dataset}:train[3:9]", document="pair", field="verse,answer")
    assert pairs == [f"{verse}\na {verse.split()[1]}" for verse in verses]
    with pytest.raises(ValueError, match=r"test\[0\]: the target is empty"):
        read_documents(f"{dataset}:test", document="pair", field="verse,answer")
    with pytest.raises(ValueError, match="no field 'reply', it has answer, mood, number, verse"):
        read_documents(dataset, document="pair", field="verse,reply")


@pytest.mark.slow
def test_labelled_tensorflow_datasets(dataset):
    verses = read_documents(f"{dataset}:train[20:40]", field="verse")
    columns = labelled_examples.Columns(("verse", "answer"), "mood")
    read = labelled_examples.read_examples(
        f"{dataset}:train[20:40]", columns, labelled_examples.parse_class
    )
    numbers = [int(verse.split()[1]) for verse in verses]
    assert [example[:2] for example in read] == [
        ((verse, f"a {i}"), ("glad", "a")[i % 2]) for i, verse in zip(numbers, verses)
    ]
    assert labelled_examples.list_classes(read) == ("a", "glad") and "train[20]" in read[0].location
    scores = labelled_examples.read_examples(
        f"{dataset}:train[20:40]",
        labelled_examples.Columns(("verse",), "number"),
        labelled_examples.parse_score,
    )
    assert [example.label for example in scores] == numbers
    with pytest.raises(
        ValueError, match=r"test\[0\]: column 'mood': None is not the name of a class"
    ):
        labelled_examples.read_examples(
            f"{dataset}:test",
            labelled_examples.Columns(("verse",), "mood"),
            labelled_examples.parse_class,
        )


def test_tensorflow_datasets_that_cannot_be_read(dataset):
    for name, field, message in [
        (dataset, "text", "no field 'text', it has answer, mood, number, verse; --field"),
        (f"{dataset}:dev", "verse", "no split 'dev'; it has"),
        ("tfds:no_such_dataset_of_verses", "verse", "TFDS knows no such dataset"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_documents(name, field=field)
    with pytest.raises(ValueError, match=r"train\[0\]: field 'number' is int(64)?, not a text"):
        read_documents(dataset, field="number")


# ---- the built-in corpus


@pytest.fixture(scope="module")
def builtin_corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("builtin") / "builtin.jsonl"
    counts = builtin.write_builtin(path)
    return (
        path,
        counts,
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()],
    )


@pytest.mark.slow
def test_the_built_in_corpus_is_large_and_english(builtin_corpus):
    _, counts, records = builtin_corpus
    texts = [record["text"] for record in records]
    assert sum(map(len, texts)) > 2_000_000 and len(texts) > 1000
    assert len({record["name"] for record in records}) == len(records)
    words = " ".join(texts).lower().split()
    common = sum(
        word in {"the", "a", "of", "to", "is", "in", "and", "if", "for", "that"} for word in words
    )
    assert 0.15 < common / len(words) < 0.4
    assert all(counts.values()) and len(counts) == 3
    paragraphs = [paragraph for text in texts for paragraph in text.split("\n\n")]
    assert not any(
        paragraph.startswith(">>>") or ":class:`" in paragraph for paragraph in paragraphs
    )
    assert all(len(text.split()) >= builtin.MIN_DOCUMENT_WORDS for text in texts)


def test_the_built_in_corpus_is_repeatable(tmp_path, monkeypatch):
    """The fingerprint of a copied part of the library depends on its contents, not on its location
    or order.
    """
    library, found = pathlib.Path(sysconfig.get_path("stdlib")), pathlib.Path.rglob
    for name, packages in (
        ("a", ["json", "pydoc_data", "wsgiref"]),
        ("b", ["wsgiref", "pydoc_data", "json"]),
        ("c", ["json"]),
    ):
        for package in packages:
            shutil.copytree(library / package, tmp_path / name / package)
        (tmp_path / name / "test").mkdir()
        (tmp_path / name / "test" / "left.py").write_text(
            '"""This docstring of a test is not in the corpus at all."""'
        )
        order = {"a": sorted, "b": lambda paths: sorted(paths)[::-1], "c": sorted}[name]
        monkeypatch.setattr(pathlib.Path, "rglob", lambda *args, order=order: order(found(*args)))
        monkeypatch.setattr(sysconfig, "get_path", lambda _, root=tmp_path / name: str(root))
        builtin.write_builtin(tmp_path / f"{name}.jsonl")
    first, second, third = ((tmp_path / f"{name}.jsonl").read_bytes() for name in "abc")
    assert first == second != third and b"is not in the corpus" not in first
    names = [json.loads(line)["name"] for line in third.decode().splitlines()]
    assert "json" in names and "json.decoder.JSONDecoder" in names


def test_markup_and_code_are_taken_out():
    counts = collections.Counter()
    text = """The :class:`Queue` and ``put()`` of *this* **module**::

    >>> 1 + 1
    2

    for x in range(10): y[x] = {f(x): g[x, 1] ** 2}

    * first item
      goes on
    - second item

    ======  ====
    a = b; c == d; e[0] = f(1, 2)
    """
    assert list(builtin._clean_paragraphs([text, text], set(), counts)) == [
        "The Queue and put() of this module:",
        "* first item goes on",
        "- second item",
    ]
    assert (
        counts["docstrings and comments that occurred before"] == 1
        and counts["paragraphs of code or tables"] == 3
    )
