"""A source without text: the pipeline and the trainer use only the protocol."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm
from data.pipeline import Stream
from data.source import RowSet


class Encoding:
    """The encoding of `Counts`: a number stands for itself."""

    fingerprint = "numbers"

    @property
    def artefacts(self):
        return {"numbers": self.save}

    def save(self, folder):
        with open(f"{folder}/meaning.txt", "w") as file:
            file.write("a number stands for itself\n")


@dataclasses.dataclass
class Counts:
    """Rows that count upwards, modulo 100: row r begins with r. There is no vocabulary, file or
    document.
    """

    count: int = 60
    path: str = "counting"
    damaged: bool = False

    @property
    def fingerprint(self):
        return f"counts of {self.count}"

    @property
    def encoding(self):
        return Encoding()

    def open_rows(self, split, objective):
        count = self.count if split == "train" else 10

        def build_batch(row_B, key_B):
            row_BN = (row_B[:, None] + np.arange(objective.length + 1)).astype(np.int32) % 100
            weights_BL = np.ones((len(row_B), objective.length), np.float32)
            return {
                "token_ids": row_BN[:, :-1].copy(),
                "labels": row_BN[:, 1:].copy(),
                "label_weights": weights_BL,
            }

        table = SimpleNamespace(count=count, offsets=np.array([0, count]))
        return RowSet(table, build_batch, [SimpleNamespace(name="counting", rate=1.0)])

    def verify_or_salvage(self, on_corrupt):
        if self.damaged:
            raise ValueError("counting: it does not count any more")
        return self


def test_its_rows_are_read_once_an_epoch_on_any_hosts():
    data = Data(objective=CausalLm(length=5), batch_size=12)
    stream = Stream(Counts(), data, seed=3)
    seen = np.concatenate([stream.build_batch(step)["token_ids"][:, 0] for step in range(5)])
    assert sorted(seen.tolist()) == list(range(60)) and seen.tolist() != list(range(60))
    parts = [next(stream.iterate_batches(2, lo, hi)) for lo, hi in ((0, 5), (5, 12))]
    whole = stream.build_batch(2)
    assert all(
        np.array_equal(np.concatenate([part[key] for part in parts]), whole[key]) for key in whole
    )


@pytest.mark.slow
def test_it_is_trained_on_and_recorded(tmp_path):
    from models.config.gpt2 import Gpt2Config
    from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
    from pretrain.settings.overrides import ConfigError
    from pretrain.training.loop import train
    from pretrain.workdir import metrics_file
    from pretrain.workdir.checkpoints import Checkpoints

    run = Run(
        model=Gpt2Config(vocab=100, length=16, width=32, depth=1, num_heads=2, mlp=64, dropout=0.0),
        data=Data(objective=CausalLm(length=16), batch_size=16),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2),
        train=Train(steps=30, compute_dtype="float32"),
        evaluate=Evaluate(every=30),
        checkpoint=Checkpoint(every=30),
    )
    first = dataclasses.replace(run, train=dataclasses.replace(run.train, stop_at_step=5))
    assert train(first, tmp_path / "run", source=Counts()) is None
    record = json.loads((tmp_path / "run" / "source.json").read_text())
    assert record == {"fingerprint": "counts of 60", "path": "counting"}
    assert (tmp_path / "run" / "numbers" / "meaning.txt").exists()
    with pytest.raises(ConfigError, match="holds a run of other data"):
        train(run, tmp_path / "run", source=Counts(count=59))
    with pytest.raises(ValueError, match="does not count any more"):
        train(run, tmp_path / "run", source=Counts(damaged=True))
    assert train(run, tmp_path / "run", source=Counts()) is None
    rows = metrics_file.read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "learning_rate" in row] == list(range(1, 31))
    with Checkpoints(tmp_path / "run", read_only=True) as checkpoints:
        record = checkpoints.load_record(30)
    assert record["encoding"] == "numbers" and record["rows"] == 480
    assert record["scores"]["causal_lm"] < 0.5 * np.log(100)
