"""A program with a wrong argument, or without an input, says so in one line and measures nothing."""

import importlib
import sys

import pytest

WRONG = {
    "speed.memory --only nonsense": "--only: invalid choice: 'nonsense'",
    "speed.plans --only nonsense": "--only: invalid choice: 'nonsense'",
    "speed.replicas --steps 0": "--steps: 0 is less than 1",
    "speed.replicas --config nonsense": "nonsense",
    "speed.microbatch_sums --config nonsense": "nonsense",
    "speed.microbatch_sums --rows 65": "--rows: 65 is not a multiple of 64",
    "speed.recompute --only bert_base --topology nonsense": "nonsense",
    "speed.packing --model [1]": "--model: [1] is not a JSON object",
    "speed.packing --model {": "--model: { is not a JSON object",
    "papers.proof {none}": "{none}",
    "papers.proof {none} --batches 0": "--batches: 0 is less than 1",
    "papers.downstream --page --work {empty}": "{empty}/results has no result of an encoder",
    "papers.downstream --from {none} --corpora {empty} --work {empty}": "--from: {none}: no such file",
    "papers.grover --corpora {empty} --folder {new}": "--corpora: {empty}/books/train: no such file",
    "papers.classifiers --corpora {empty} --runs {new}": "--corpora: {empty}/cls_sentconv/mr.jsonl: no such",
    "papers.classifiers --corpora {empty} --runs {new} --models encoder --encoder {none}": "--encoder: {none}",
    "papers.char_lstm {none} {none} --workdir {empty}": "training: {none}: no such file",
    "papers.byte_models {none} --models dense": "TEXT: {none}: no such file",
    "papers.ladder --corpora {empty} --folder {new}": "--corpora: {empty}/books/train: no such file",
    "papers.ladder --corpora {empty} --folder {new} --minutes -1": "--minutes: -1 is not above 0",
    "papers.encoder_shapes --corpora {empty} --folder {new}": "--corpora: {empty}/books/train: no such file",
    "papers.encoder_shapes --corpora {empty} --folder {new} --shapes oval": "argument --shapes: ",
    "papers.optimizers --corpora {empty} --folder {new}": "--corpora: {empty}/books/train: no such file",
    "papers.optimizers --corpora {empty} --folder {new} --optimizers sgd": "argument --optimizers: ",
    "papers.budgets --corpora {empty} --folder {new}": "--corpora: {empty}/books/train: no such file",
    "papers.budgets --corpora {empty} --folder {new} --first 15": "--first: 15 is not a multiple of 10",
    "papers.modern_recipe --corpora {empty} --folder {new}": "--corpora: {empty}/books/train: no such file",
    "speed.scoring --corpora {empty}": "--corpora: {empty}/books/train/charles",
    "speed.prepare_datasets --corpora {empty}": "--corpora: {empty}/books/train: no such file",
    "papers.seq2seq {empty} --work {new}": "corpus: {empty}/train.en: no such file",
    "papers.translate {empty} --work {new}": "corpus: {empty}/train.en: no such file",
    "papers.image_distillation --images {empty} --runs {new}": "--images: {empty}/train.npz: no such file",
    "papers.image_distillation --images {empty} --runs {new} --labels 15": "--labels: 15 is not a multiple of 10",
    "papers.image_distillation --images {empty} --runs {new} --teacher-labels 5": "5 is not a multiple of 10",
    "papers.words_and_pictures {empty} --work {new}": "corpus: {empty}/train.npz: no such file",
    "papers.feature_layers --from {none} --work {new}": "--from: {none}: no such file",
    "papers.elmo_tagger --from {none} --work {new}": "--from: {none}: no such file",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_it_is_reported_in_one_line(words, tmp_path, monkeypatch, capsys):
    folders = {name: str(tmp_path / name) for name in ("none", "empty", "new")}
    (tmp_path / "empty").mkdir()
    name, *rest = [word if word == "{" else word.format(**folders) for word in words.split()]
    program = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLOZE_TRACEBACK", raising=False)
    monkeypatch.setattr(sys, "argv", [program.__file__, *rest])
    with pytest.raises(SystemExit) as ended:
        program.main()
    message = WRONG[words]
    message = message if "{ is" in message else message.format(**folders)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()
