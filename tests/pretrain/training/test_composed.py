"""The page about the input pipeline is true: its code blocks train on a TFDS dataset that is
written here.
"""

import dataclasses
import re

import numpy as np
import pytest

from data.objectives import MaskedLm
from data.pipeline import Stream
from data.store.reader import Store
from pretrain import config
from pretrain.training.loop import train
from pretrain.workdir import metrics_file
from tests.fingerprints import read_fingerprints
from tests.pretrain.conftest import RUNS, make_texts

STEPS = 4


@pytest.fixture
def news(tmp_path, monkeypatch):
    """Write AG News with 300 sentences, which `tfds.load` reads from the disk."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class AgNewsSubset(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        """Sentences."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.FeaturesDict({"description": tfds.features.Text()})
            return tfds.core.DatasetInfo(builder=self, description="news", features=features)

        def _split_generators(self, manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i, text in enumerate(make_texts(300)):
                yield i, {"description": text}

    builder = AgNewsSubset(data_dir=tmp_path / "tfds", file_format="tfrecord")
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))

    def load_news(name, split, shuffle_files):
        assert name == builder.name
        return builder.as_dataset(split=split, shuffle_files=shuffle_files)

    monkeypatch.setattr(tfds, "load", load_news)


@pytest.fixture
def tiny(stores, monkeypatch):
    """Replace `pretrain.config.load` by tiny runs of the requested family."""
    real = config.load

    def load_tiny(name, overrides):
        real(name, overrides)
        family = "t5" if name.startswith("t5") else "bert"
        run = RUNS[family]
        return dataclasses.replace(
            run,
            model=dataclasses.replace(run.model, vocab=256),
            data=dataclasses.replace(run.data, store=str(stores[family].path), batch_size=8),
            train=dataclasses.replace(run.train, steps=STEPS),
            evaluate=config.Evaluate(every=0),
            checkpoint=config.Checkpoint(every=2, keep=9),
        )

    monkeypatch.setattr(config, "load", load_tiny)
    return load_tiny


@pytest.mark.more
def test_the_code_of_the_page_trains_and_resumes(root, news, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (root / "docs" / "data.md").read_text(), re.S):
        exec(block, names)
    for workdir in ("frequent", "news", "t5_news"):
        rows = metrics_file.read_metrics(tmp_path / "runs" / workdir / "metrics.jsonl")
        assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
        assert all(np.isfinite(row["loss"]) for row in rows)

    run = tiny("bert_mini", [])
    stopped = dataclasses.replace(run, train=dataclasses.replace(run.train, stop_at_step=2))
    for part in (stopped, run):
        assert train(part, tmp_path / "again", dataset=names["masked_news"]) is None
    found = read_fingerprints(tmp_path / "again", STEPS)
    assert found == read_fingerprints(tmp_path / "runs" / "news", STEPS)
    assert found != read_fingerprints(tmp_path / "runs" / "frequent", STEPS)


def test_a_dataset_that_does_not_fit_is_refused_before_anything_is_written(tiny, tmp_path):
    def drop_keys(stream, start_step, lo, hi):
        return stream.make_dataset(start_step, lo, hi).map(lambda batch: list(batch.values()))

    with pytest.raises(ValueError, match="not dicts of tensors"):
        train(tiny("bert_mini", []), tmp_path / "run", dataset=drop_keys)
    assert not (tmp_path / "run" / "config.json").exists()


def test_the_store_s_own_dataset_trains_to_the_same_bits(tiny, tmp_path):
    """With and without the user's function, on eight devices."""
    run = tiny("bert_mini", [])

    def of_store(stream, start_step, lo, hi):
        return stream.make_dataset(start_step, lo, hi)

    train(run, tmp_path / "one")
    train(run, tmp_path / "other", dataset=of_store)
    assert read_fingerprints(tmp_path / "one", STEPS) == read_fingerprints(
        tmp_path / "other", STEPS
    )
    assert isinstance(run.data.objective, MaskedLm)
    assert Stream(Store.open(run.data.store), run.data).num_rows > 8
