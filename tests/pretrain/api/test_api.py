"""The functions of pretrain.api do what the verbs do, and a notebook can show their results."""

import json
import pathlib
import threading
import zlib
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from models import build
from pretrain import api
from pretrain.__main__ import main
from pretrain.config import load
from pretrain.processes import exchange, processes
from pretrain.settings.arguments import list_arguments
from pretrain.settings.overrides import ConfigError

pytestmark = pytest.mark.slow

TEXT = """The quick brown fox jumps over the lazy dog.
A cloze is a test in which words are left out of a text, and the reader fills the gaps.
Whoever reads the words before a gap and behind it can often say which one was there.
"""
QUESTION = "The quick [MASK] jumps over the [MASK] dog."
SMALL = {
    "model.width": 32, "model.mlp": 48, "model.num_heads": 2, "data.batch_size": 8,
    "train.steps": 4, "evaluate.every": 2, "evaluate.samples": 0, "checkpoint.every": 4,
    "optimizer.warmup_steps": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a store and a run, both made by the functions."""
    folder = tmp_path_factory.mktemp("api")
    text = folder / "texts.txt"
    text.write_text(TEXT * 30)
    store = api.prepare(
        str(text), folder / "store", vocab_size=60, document="record", held_out=0.2, workers=1
    )
    assert store.store.manifest["vocabulary"]["size"] == 60
    result = api.train("bert_tiny", folder / "run", SMALL | {"data.store": str(folder / "store")})
    assert result.signal is None
    return folder


def print_verb(capsys, *words):
    """Return what a verb prints, after it succeeded."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_train_is_the_verb(folder, capsys):
    words = list_arguments(SMALL | {"data.store": str(folder / "store")})
    print_verb(capsys, "train", "bert_tiny", "--workdir", folder / "verb", *words)
    ours, others = (api.load(folder / name) for name in ("run", "verb"))
    assert ours.step == others.step == 4
    jax.tree.map(np.testing.assert_array_equal, ours.params, others.params)


def test_train_resumes_and_takes_a_run(folder):
    changed = SMALL | {
        "data.store": str(folder / "store"),
        "model.vocab": 60,
    }  # a Run stays as it is
    run = load("bert_tiny", list_arguments(changed))
    result = api.train(run, folder / "halves", {"train.stop_at_step": 2})
    assert result.step == 2
    assert api.train(run, folder / "halves").step == 4
    one, two = (api.load(folder / name).params for name in ("run", "halves"))
    jax.tree.map(np.testing.assert_array_equal, one, two)


def test_a_result_has_the_metrics_and_the_scores(folder):
    result = api.RunResult(str(folder / "run"))
    rows = result.read_metrics()
    assert [row["step"] for row in rows] == [1, 2, 3, 4] and result.step == 4
    assert result.heldout["loss"] == rows[-1]["heldout_loss"] > 0
    page = result._repr_html_()
    assert "step 4" in page and f"{result.heldout['loss']:.5g}" in page
    assert page.count("data:image/png;base64,") == len(api.draw_curves(folder / "run")) >= 2


def test_a_result_shows_what_is_not_finite_and_what_is_damaged(tmp_path):
    rows = [
        {"step": 1, "loss": None, "heldout_loss": None, "heldout_<b>": "<i>"},
        {"step": 2, "loss": "<script>"},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = api.RunResult(str(tmp_path))._repr_html_()
    assert page.count("not finite") == 3 and "<script>" not in page and "<b>" not in page


def test_a_result_escapes_what_it_shows(tmp_path):
    page = api.RunResult(str(tmp_path / "<script>alert(1)</script>"))._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and "step 0" in page


def test_evaluate_is_the_verb(folder, capsys):
    printed = json.loads(print_verb(capsys, "evaluate", "--workdir", folder / "run", "--json"))
    scores = api.evaluate(folder / "run")
    assert scores.items() <= printed.items() and scores["rows"] > 1
    trained = api.load(folder / "run")
    assert api.evaluate(trained, batch_size=16)["loss"] == pytest.approx(scores["loss"], rel=1e-6)


def test_questions_are_those_of_the_verb(folder, tmp_path, capsys):
    task = tmp_path / "questions.jsonl"
    record = {"context": "The quick", "choices": ["brown fox", "lazy dog"], "answer": 0}
    task.write_text(json.dumps(record) + "\n")
    words = ("evaluate", "--workdir", folder / "run", "--task", task, "--json")
    assert main([str(word) for word in words]) == 2  # a masked language model scores no text
    with pytest.raises(ValueError, match="BertConfig") as error:
        api.evaluate_questions(folder / "run", task)
    assert str(error.value) in capsys.readouterr().err


def test_predict_is_the_verb(folder, capsys):
    words = ("predict", "--workdir", folder / "run", "--top", 3, "--json", QUESTION)
    printed = json.loads(print_verb(capsys, *words))
    (result,) = api.predict(folder / "run", QUESTION, top=3)
    assert {"text": QUESTION} | result == printed
    assert [len(mask) for mask in result["masks"]] == [3, 3]


def test_a_predictor_serves_many_calls(folder):
    trained = api.load(folder / "run")
    predictor = api.Predictor(trained, top=2)
    both = predictor([QUESTION, {"text": "A [MASK] is a test."}])
    assert both[:1] == predictor(QUESTION) == api.predict(trained, [QUESTION], top=2)
    assert len(both) == 2 and predictor([]) == []


def test_load_computes(folder):
    trained = api.load(folder / "run")
    model, objective = build(trained.run.model), trained.run.data.objective
    ids_BL = np.ones((1, objective.length), np.int32)
    logits_BPV = model.apply(
        {"params": trained.params},
        token_ids=ids_BL,
        attention_mask=ids_BL > 0,
        masked_positions=np.zeros((1, 2), np.int32),
    )
    assert jax.tree.leaves(logits_BPV)[0].shape == (1, 2, 60)  # as the store's vocabulary
    assert api.load(trained) is trained


def test_export_is_the_verb_and_comes_back(folder, tmp_path, capsys):
    files = api.export(api.load(folder / "run"), tmp_path / "ours")
    print_verb(capsys, "export", "--workdir", folder / "run", "--output", tmp_path / "verb")
    for name, size in files.items():
        ours = (tmp_path / "ours" / name).read_bytes()
        assert len(ours) == size
        if name != "README.md":  # names the folder
            assert ours == (tmp_path / "verb" / name).read_bytes()
    imported = api.import_folder(tmp_path / "ours", tmp_path / "again", {"train.steps": 3})
    assert imported.run.train.steps == 3 and not imported.unused
    for path, leaf in jax.tree_util.tree_leaves_with_path(api.load(tmp_path / "again").params):
        other = api.load(folder / "run").params
        for key in path:
            other = other.get(key.key, {})
        if not isinstance(other, dict):  # the pooler and the sentence head are new
            np.testing.assert_array_equal(leaf, other)
    with pytest.raises(ValueError, match="no option 'types'; it has model, output, step"):
        api.export(folder / "run", tmp_path / "more", types=1)
    with pytest.raises(ValueError, match="user"):
        api.push(folder / "run", "no-such/user/name")


@pytest.mark.more
def test_finetune_is_the_verb(folder, tmp_path, capsys):
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    lines = ["text\tlabel", *(f"{line}\t{n % 2}" for n, line in enumerate(TEXT.split("\n") * 8))]
    train.write_text("\n".join(line for line in lines if line[0] != "\t"))
    dev.write_text("\n".join(line for line in lines[:9] if line[0] != "\t"))
    small = {"train.steps": 2, "data.batch_size": 8, "data.objective.length": 16}
    small |= {"optimizer.warmup_steps": 1, "evaluate.every": 2, "checkpoint.every": 2}
    files = dict(train=train, heldout=str(dev))
    result = api.finetune(folder / "run", "classification", tmp_path / "ours", small, **files)
    assert result.step == 2 and 0 <= result.heldout["accuracy"] <= 1
    words = ("finetune", "--from", folder / "run", "--task", "classification", "--train", train)
    words += ("--heldout", dev, "--workdir", tmp_path / "verb", *list_arguments(small))
    print_verb(capsys, *words)
    ours, others = (api.load(tmp_path / name).params for name in ("ours", "verb"))
    jax.tree.map(np.testing.assert_array_equal, ours, others)
    assert api.predict(result.workdir, "The quick fox.")[0]["label"] in ("0", "1")
    two = api.finetune_seeds(
        folder / "run", "classification", tmp_path / "two", small, seeds=2, **files
    )
    assert [one.workdir[-6:] for one in two] == ["seed-0", "seed-1"]
    listed = api.finetune(
        api.load(folder / "run"),
        "classification",
        tmp_path / "listed",
        small,
        columns=["text", "label"],
        labels=["1", "0"],
        **files,
    )
    assert api.load(listed.workdir).run.model.labels == ("1", "0")
    for call, message in (
        (lambda: api.finetune(folder, "cola", "w", epoch=1), "no option 'epoch'"),
        (lambda: api.finetune(folder, "cola", "w", fresh="none"), "--fresh none: must be head"),
        (lambda: api.finetune(folder, "cola", "w", on_bad_example="s"), "must be refuse or skip"),
        (lambda: api.finetune(folder, "cola", "w", heldout=["a", "b"]), "2 values for one task"),
        (lambda: api.finetune(folder, "cola", "w", seeds=3), "finetune_seeds"),
        (lambda: api.finetune(None, "cola", "w"), "`config` of a new one"),
        (lambda: api.finetune(folder / "run", "colla", "w", train=train), "must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def read_png(data):
    """Return the width and the height of a PNG file, whose checksums are right."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR"
    assert zlib.crc32(data[12:29]) == int.from_bytes(data[29:33], "big")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_curves_are_pictures(folder, tmp_path):
    pictures = {picture.name: picture for picture in api.draw_curves(folder / "run")}
    assert "loss" in pictures and read_png(pictures["loss"]._repr_png_()) == (840, 480)
    pictures["loss"].save(tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes() == pictures["loss"].png
    assert repr(pictures["loss"]) == f"Picture('loss', {len(pictures['loss'].png):,} bytes)"


def test_overrides_may_be_numbers_of_numpy():
    overrides = {
        "train.steps": np.int64(5),
        "data.rates": [np.float64(0.5), 2],
        "evaluate.metrics": [np.str_("f1")],
    }
    run = load("bert_tiny", list_arguments(overrides))
    assert (run.train.steps, run.data.rates, run.evaluate.metrics) == (5, (0.5, 2), ("f1",))
    assert load("bert_tiny", list_arguments({"data.rates": np.ones(2)})).data.rates == (1, 1)
    filters = ((1, 32), (2, 64))
    for pairs in ([*map(np.array, filters)], [tuple(map(np.int64, pair)) for pair in filters]):
        arguments = list_arguments({"model.character_filters": pairs})
        assert load("elmo_tiny", arguments).model.character_filters == filters
    with pytest.raises(ValueError, match="^data.rates"):
        load("bert_tiny", list_arguments({"data.rates": [np.ones(2)]}))


def test_curves_leave_out_what_is_damaged(tmp_path):
    """As the report does; a run without a row has no curves to return."""
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    path.write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": "x"}\n')
    (picture,) = api.draw_curves(tmp_path / "run")
    assert picture.name == "loss"
    path.write_text('{"step": 1, "lo')
    with pytest.raises(FileNotFoundError, match=r"metrics\.jsonl has no rows to draw"):
        api.draw_curves(tmp_path / "run")


def test_attention_is_a_picture_per_layer(folder):
    pictures = api.draw_attention(folder / "run", QUESTION, heads=[2])
    assert [picture.name for picture in pictures] == ["encoder, layer 1", "encoder, layer 2"]
    assert all(min(read_png(picture.png)) > 100 for picture in pictures)
    (one,) = api.draw_attention(folder / "run", QUESTION, layers=[2], heads=[2])
    assert one == pictures[1]
    with pytest.raises(ValueError, match="layers 1 to 2"):
        api.draw_attention(folder / "run", QUESTION, layers=[3])


@pytest.mark.held_by(6)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: api.train("bert_tinny", run), "did you mean 'bert_tiny'"),
        (lambda run: api.train("bert_tiny", run, {"train.step": 3}), "did you mean 'steps'"),
        (lambda run: api.train("bert_tiny", run, ["train.steps"]), "path=value"),
        (
            lambda run: api.predict(run, "a", tops=3),
            "no option 'tops'; it has texts, model, step, parameters, top",
        ),
        (lambda run: api.predict(run, "a", top=0), "--top 0: must be at least 1"),
        (lambda run: api.predict(run, "a", beams=2, top_p=0.9), "give one or the other"),
        (lambda run: api.predict(run, "a", beams=2), "fills each"),
        (lambda run: api.predict(run, [3]), "text 1: expected a text"),
        (lambda run: api.predict(run / "none", "a", top_p=2.0), "top_p|top-p"),
        (lambda run: api.predict(run / "none", "a"), "none"),
        (lambda run: api.train("bert_tiny", pathlib.Path("gs://b/r")), "removes a slash of gs://"),
        (lambda run: api.train("bert_tiny", run, "train.step=3"), "did you mean 'steps'"),
        (lambda run: api.train("bert_tiny", run, tracker="json"), "none, wandb or mlflow"),
        (lambda run: api.export(run, run / "s", format="onnx"), "must be transformers or jax"),
        (lambda run: api.export(run, run / "s", dtype="fp16"), "--dtype fp16: must be float32"),
        (lambda run: api.draw_curves(run / "none"), "metrics.jsonl: no such file"),
        (lambda run: api.prepare(pathlib.Path("no.txt"), run / "s"), "no.txt"),
        (lambda run: api.prepare("builtin", run / "s", validation="no.txt"), "no.txt"),
        (lambda run: api.prepare("builtin", run / "s", vocabulary="hf://a/b", held_out=2), "held"),
        (lambda run: api.load(run, step=3), "step 3|checkpoint"),
        (lambda run: api.load(api.load(run), step=3), "of step 4"),
        (lambda run: api.evaluate(api.load(run), step=3), "of step 4"),
        (lambda run: api.evaluate(run, split="test"), "test"),
        (lambda run: api.prepare("builtin", run / "s", vocab=3), "no option 'vocab'"),
        (lambda run: api.prepare("builtin", "gs://b/s"), "on this machine"),
        (lambda run: api.prepare([], run / "s"), "no source"),
    ],
)
def test_bad_input_is_one_error(folder, call, message):
    with pytest.raises((ValueError, OSError), match=message):
        call(folder / "run")
    assert not (folder / "run" / "s").exists()


def test_train_is_for_the_main_thread(tmp_path):
    errors = []

    def call():
        try:
            api.train("bert_tiny", tmp_path / "run")
        except ValueError as error:
            errors.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "main thread" in errors[0] and not [*tmp_path.iterdir()]


def test_curves_leave_the_backend_of_a_notebook(folder):
    import matplotlib

    before = matplotlib.get_backend()
    matplotlib.use("svg")
    try:
        api.draw_curves(folder / "run")
        assert matplotlib.get_backend() == "svg"
    finally:
        matplotlib.use(before)


def test_the_first_process_alone_pushes(folder, monkeypatch):
    other = SimpleNamespace(process_index=1)
    monkeypatch.setattr("pretrain.api.exporting.detect_cluster", lambda environ: other)
    assert api.push(folder / "run", "user/name") is None


def test_a_second_run_of_several_processes_has_keys_of_its_own(monkeypatch):
    monkeypatch.setattr(exchange, "_round", 0)
    exchange.begin_round()
    assert exchange._make_key("facts", 3) == "cloze/preflight/facts/3"  # there is one process
    monkeypatch.setattr(processes, "get_client", object)
    keys = []
    for _ in range(3):
        exchange.begin_round()
        keys.append(exchange._make_key("facts", 3))
    assert keys[0] == "cloze/preflight/facts/3" and len({*keys}) == 3


def test_overrides_are_values_or_arguments():
    values = {
        "train.steps": 5,
        "optimizer.learning_rate": 3e-4,
        "model.scan": False,
        "train.seed": 7,
        "mesh.data": None,
        "evaluate.metrics": ("accuracy",),
    }
    assert list_arguments("train.steps=5") == ["train.steps=5"]
    assert list_arguments({"a": ("0", "1"), "b": [], "c": ("x, y",)}) == [
        "a=('0', '1')",
        "b=()",
        "c=('x, y',)",
    ]
    arguments = list_arguments(values)
    assert arguments[2] == "model.scan=False" and list_arguments(arguments) == arguments
    run = load(
        "bert_tiny", [word for word in arguments if "mesh" not in word and "metr" not in word]
    )
    assert run.train.steps == 5 and run.optimizer.learning_rate == 3e-4 and run.model.scan is False
    with pytest.raises(ConfigError, match="no 'steps.x'|has no"):
        load("bert_tiny", list_arguments({"train.steps.x": 3}))


def test_the_package_has_its_names():
    names = {name for names in api.FILES.values() for name in names}
    assert names == {*api.__all__} <= {*dir(api)}
    assert all(callable(getattr(api, name)) for name in names)
    with pytest.raises(AttributeError, match="has no 'trian'; it has Picture"):
        _ = api.trian
