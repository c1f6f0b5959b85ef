"""Checkpoints by words read: counted as `str.split` counts the text, saved once, never deleted, and
exported under the names of BabyLM's evaluation.
"""

import dataclasses
import types

import numpy as np
import pytest

from data.config import Data
from data.mixed import Mixed, MixedPart
from data.objectives import CausalLm, MaskedNextToken
from data.prepare.build import PrepareRequest, prepare_store
from models.config.gpt2 import Gpt2Config
from pretrain import api
from pretrain.__main__ import main
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from pretrain.phases import open_streams, resolve_phases
from pretrain.settings import Phase
from pretrain.settings.overrides import ConfigError
from pretrain.training.loop import train
from pretrain.training.monitoring.word_steps import (
    count_words,
    find_step,
    list_source_words,
    name_revision,
    plan_word_steps,
)
from pretrain.workdir.checkpoints import Checkpoints
from tests.pretrain.conftest import make_texts
from tests.pretrain.convert.hub import conftest
from tests.small_store import write_store

hub = conftest.hub  # the fixture
HYBRID = Mixed(
    (
        MixedPart("masked", MaskedNextToken(length=17, max_predictions=5, mask_rate=0.3), 3.0),
        MixedPart("causal", CausalLm(length=16)),
    )
)
STEPS = 6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return (store, words of its training part) of a long and a short file, a text a line."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = make_texts(420)
    (folder / "long.txt").write_text("\n".join(texts[:400]))
    (folder / "short.txt").write_text("\n".join(f"yes,{text}  no-one!" for text in texts[400:]))
    request = PrepareRequest(
        (str(folder / "long.txt"), str(folder / "short.txt")),
        vocab_size=300,
        layout="roberta",
        algorithm="byte_bpe",
        held_out=0.0,
        document="record",
    )
    store = prepare_store(request, folder / "store").store
    words = [len(path.read_text().split()) for path in sorted(folder.glob("*.txt"))]
    return store, np.array(words)


def make_run(store, **changes):
    run = Run(
        model=Gpt2Config(vocab=300, length=17, width=16, depth=1, num_heads=2, mlp=16),
        data=Data(objective=HYBRID, store=str(store.path), batch_size=32),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2),
        train=Train(steps=STEPS, compute_dtype="float32"),
        evaluate=Evaluate(every=0),
    )
    return dataclasses.replace(run, **changes)


def make_causal_run(store):
    return make_run(
        store, data=Data(objective=CausalLm(length=16), store=str(store.path), batch_size=32)
    )


@dataclasses.dataclass
class OpenRows:
    start: int
    stop: int
    stream: object

    @property
    def batches(self):
        return self.stream


def open_rows(store, run):
    phases = resolve_phases(run)
    streams = open_streams(store, phases, "train")
    return [OpenRows(one.start, one.stop, stream) for one, stream in zip(phases, streams)]


def count_by_rows(phases, words_S, steps):
    """Return the words read: each row that was drawn is its share of the words of its source."""
    total = 0.0
    for phase in phases:
        for part in phase.stream.streams.values():
            for step in range(phase.start, min(phase.stop, steps)):
                first = part.locate_rows(step)
                source_B, _, _ = part.load_rows(np.arange(first, first + part.data.batch_size))
                total += float((words_S / part.rows_S)[source_B].sum())
    return total


def test_words_are_counted_as_blanks_separate_them(corpus):
    store, words = corpus
    assert list_source_words(store).tolist() == words.tolist()
    counts = store.manifest["text_by_source"]
    assert [count["train_words"] for count in counts] == words.tolist()


def test_words_read_are_those_of_the_rows_drawn(corpus):
    """Of two parts, two sources, and two phases of other lengths and batches."""
    store, words = corpus
    phases = (
        Phase("first", 5),
        Phase("second", 7, overrides=("data.batch_size=64", "data.rates=[0.5,0.5]")),
    )
    for run in (make_run(store), make_run(store, phases=phases, train=Train(steps=12))):
        rows = open_rows(store, run)
        for step in (0, 1, 4, 5, 6, 12):
            expected = count_by_rows(rows, words, step)
            if step <= rows[-1].stop:
                assert count_words(rows, words, step) == pytest.approx(expected), step
        goal = 0.6 * count_by_rows(rows, words, rows[-1].stop)
        step = find_step(rows, words, goal, 0, rows[-1].stop)
        assert count_by_rows(rows, words, step - 1) < goal <= count_by_rows(rows, words, step)
        assert find_step(rows, words, 10 * goal, 0, rows[-1].stop) is None


def test_an_epoch_reads_every_word_once(corpus):
    store, words = corpus
    run = make_run(store, data=Data(objective=CausalLm(length=16), batch_size=1))
    (rows,) = open_rows(store, run)
    rows.stop = 10**9
    epoch = rows.stream.num_rows
    assert count_words([rows], words, epoch) == pytest.approx(words.sum(), rel=5e-3)
    tokens = np.concatenate(
        [rows.stream.build_batch(step)["token_ids"].ravel() for step in range(epoch // 2)]
    )
    begins = store.encoding.decode(tokens.tolist()).replace("  ", " ").count(" ")
    begins += int((tokens == store.encoding.eos).sum())
    assert count_words([rows], words, epoch // 2) == pytest.approx(begins, rel=0.05)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """Return (workdir, {words: step}) of a run that would keep one checkpoint."""
    store, words = corpus
    run = make_causal_run(store)
    rows = open_rows(store, run)
    wanted = {int(0.9 * count_words(rows, words, step)): step for step in (2, 4, 5)}
    rule = Checkpoint(every=100, keep=1, words=(*wanted, 10**9))
    workdir = tmp_path_factory.mktemp("run") / "run"
    assert train(dataclasses.replace(run, checkpoint=rule), workdir) is None
    return workdir, wanted


def test_the_steps_by_words_are_saved_and_stay(trained):
    workdir, wanted = trained
    with Checkpoints(workdir, read_only=True) as checkpoints:
        assert set(checkpoints.list_steps()) == {*wanted.values(), STEPS}
        for words, step in wanted.items():
            assert checkpoints.load_record(step)["words"] == [words]
        assert checkpoints.load_record(STEPS)["words"] == []


def test_a_run_that_is_resumed_keeps_them_and_plans_the_others(trained, corpus):
    """Also one that goes on with another batch size, by which earlier steps would be others."""
    (workdir, wanted), (store, words) = trained, corpus
    lines, run = [], make_causal_run(store)
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, steps=2 * STEPS))
    later = int(count_words(open_rows(store, run), words, STEPS + 3)) - 1
    run = dataclasses.replace(
        run,
        data=dataclasses.replace(run.data, batch_size=64),
        checkpoint=Checkpoint(words=(*wanted, later)),
    )
    (rows,) = open_rows(store, run)
    rows.stream.start_at_row(STEPS, STEPS * 32)
    with Checkpoints(workdir, Checkpoint(keep=1)) as checkpoints:
        log = types.SimpleNamespace(log_message=lines.append)
        found = plan_word_steps(run, [rows], store, checkpoints, STEPS, log)
        assert found == {STEPS + 2: [later]}
        assert checkpoints.retention.word_steps == {*wanted.values(), STEPS + 2}
    assert lines[0].startswith("words: 3,371 in the training part")
    assert f"{name_revision(later)} at {STEPS + 2}" in lines[0]


def test_each_is_exported_under_its_name(trained, tmp_path, capsys):
    workdir, wanted = trained
    output = tmp_path / "entry"
    command = ["export", "--workdir", str(workdir), "--output", str(output), "--by-words"]
    assert main(command) == 0
    names = [name_revision(words) for words in wanted]
    assert sorted(path.name for path in output.iterdir()) == sorted([*names, "main"])
    assert "no checkpoint for chck_1000M" in capsys.readouterr().out
    weights = {name: (output / name / "model.safetensors").read_bytes() for name in names}
    for words, step in wanted.items():
        api.export(str(workdir), tmp_path / str(step), step=step)
        same = (tmp_path / str(step) / "model.safetensors").read_bytes()
        assert weights[name_revision(words)] == same
    assert len({*weights.values()}) == len(wanted)
    assert main([*command, "--step", "2"]) == 2
    assert "--by-words chooses the steps itself" in capsys.readouterr().err


def test_each_is_pushed_to_a_branch_of_its_name(trained, tmp_path, hub, capsys):
    workdir, wanted = trained
    command = ["push", "--workdir", str(workdir), "--repo", "ann/words", "--by-words"]
    assert main(command) == 0
    repository = hub.repositories["ann/words"]
    assert set(repository.refs) == {*map(name_revision, wanted), "main"}
    steps = {name_revision(words): step for words, step in wanted.items()} | {"main": STEPS}
    for name, step in steps.items():
        api.export(str(workdir), tmp_path / name, step=step)
        for file in ("model.safetensors", "config.json", "tokenizer.json"):
            assert hub.files("ann/words", name)[file] == (tmp_path / name / file).read_bytes()
    assert "no checkpoint for chck_1000M" in capsys.readouterr().out
    first = dict(repository.refs)
    assert main([*command, "--revision", "mine"]) == 2
    assert "--by-words names the branches itself" in capsys.readouterr().err
    assert repository.refs == first


@pytest.mark.more
def test_each_opens_in_transformers(trained, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    workdir, wanted = trained
    files = api.export(str(workdir), tmp_path / "entry", by_words=True)
    for name in (*map(name_revision, wanted), "main"):
        folder = tmp_path / "entry" / name
        assert files[f"{name}/config.json"] == (folder / "config.json").stat().st_size
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        row = transformers.AutoTokenizer.from_pretrained(folder)("the old fox", return_tensors="pt")
        assert model(**row).logits.isfinite().all()


def test_numbers_of_words_have_the_names_of_the_evaluation():
    counts = (*range(1, 11), *range(20, 101, 10), 1000)
    assert [name_revision(n * 10**6) for n in counts] == [f"chck_{n}M" for n in counts]
    assert name_revision(2_500) == "chck_2500"


def test_words_that_are_not_known_are_an_error(corpus, tmp_path):
    store, _ = corpus
    plain = write_store(tmp_path / "plain", store.encoding, [[[5, 6, 7]] * 9] * 9)
    with pytest.raises(ConfigError, match=r"checkpoint.words: .*plain does not record the words"):
        list_source_words(plain)
    with pytest.raises(ConfigError, match="Checkpoint.words is .*; it must be at least 1"):
        Checkpoint(words=(5, 0))
    with pytest.raises(ValueError, match="no checkpoint records how many words"):
        api.export(str(make_empty(tmp_path, store)), tmp_path / "out", by_words=True)


def make_empty(tmp_path, store):
    from pretrain.config import to_json

    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text(to_json(make_run(store)))
    return tmp_path / "empty"
