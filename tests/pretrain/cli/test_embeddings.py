"""From an encoder to an embedder, its vectors, a search, mined negatives and an export."""

import json

import numpy as np
import pytest

from data.vocabulary.load import train_vocabulary
from pretrain.__main__ import main
from pretrain.workdir.trained import open_trained
from tests.pretrain.finetune.conftest import UNTRAINED, WORDS
from tests.pretrain.workdirs import start_untrained, write_json_lines

NOUNS, VERBS = ("fox", "dog", "river", "stone"), ("runs", "sees", "near", "old")
FAST = ["data.batch_size=16", "data.objective.length=10", "data.threads=1", "train.steps=12"]
FAST += ["evaluate.every=6", "optimizer.learning_rate=3e-3"]


def make_pairs(count):
    """Return a text and the same words in another order, with a text of other words."""
    pairs = []
    for i in range(count):
        noun, verb, first = NOUNS[i % 4], VERBS[i // 4 % 4], WORDS[i % len(WORDS)]
        query, positive = f"{first} {noun} {verb}", f"{verb} {noun} {first}"
        pairs.append({"query": query, "positive": positive, "negative": "the a the a"})
    return pairs


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """Return the workdir of an untrained BERT of WORDS."""
    workdir, rng = tmp_path_factory.mktemp("untrained") / "bert", np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 2 + int(rng.integers(3)))) for _ in range(300)]
    return start_untrained(workdir, UNTRAINED, train_vocabulary(texts, 56, algorithm="bpe"))


@pytest.fixture(scope="module")
def embedder(untrained, tmp_path_factory):
    """Return the workdir of an embedder of WORDS, 12 steps long."""
    folder = tmp_path_factory.mktemp("embedder")
    train = write_json_lines(folder / "pairs.jsonl", make_pairs(64))
    words = ["finetune", "--from", str(untrained), "--task", "embedding", "--train", train]
    assert main([*words, "--workdir", str(folder / "run"), *FAST]) == 0
    return folder / "run"


def test_a_run_learns_which_texts_belong_together(embedder):
    rows = [json.loads(line) for line in (embedder / "metrics.jsonl").read_text().splitlines()]
    losses = [row["heldout_contrastive"] for row in rows if "heldout_contrastive" in row]
    assert losses[-1] < losses[0] and any("heldout_contrastive_accuracy" in row for row in rows)


def test_scores_are_learned_on_top(embedder, tmp_path, capsys):
    pairs = [
        {"sentence1": a, "sentence2": b, "score": 5 * (a == b)}
        for a in ("fox runs", "dog sees", "old stone", "near river")
        for b in ("fox runs", "dog sees", "old stone", "near river")
    ]
    file = write_json_lines(tmp_path / "sts.jsonl", pairs)
    words = ["finetune", "--from", str(embedder), "--task", "embedding", "--train", file]
    words += ["--heldout", write_json_lines(tmp_path / "held.jsonl", pairs[::2])]
    assert main([*words, "--workdir", str(tmp_path / "run"), *FAST]) == 0
    assert main(["evaluate", "--workdir", str(tmp_path / "run"), "--labelled", file]) == 0
    assert "spearman" in capsys.readouterr().out
    assert main(["embed", "--workdir", str(embedder), "--pairs", file]) == 0
    first, spearman, pearson = capsys.readouterr().out.splitlines()[-3:]
    assert first == "step 12, 16 pairs"
    # A text is equal to itself, and no other pair is.
    assert spearman.startswith("spearman") and float(pearson.split()[1]) > 0.5


def test_a_small_run_learns_the_vectors_of_a_teacher(embedder, untrained, tmp_path, capsys):
    texts = [pair["query"] for pair in make_pairs(64)]
    plain = write_json_lines(tmp_path / "texts.jsonl", [{"text": text} for text in texts])
    output = str(tmp_path / "teacher.npz")
    assert main(["embed", "--workdir", str(embedder), "--input", plain, "--output", output]) == 0
    with np.load(output, allow_pickle=False) as file:
        vectors = file["vectors"].tolist()
    records = [{"text": text, "vector": own} for text, own in zip(texts, vectors)]
    train = write_json_lines(tmp_path / "vectors.jsonl", records)
    words = ["finetune", "--from", str(untrained), "--task", "embedding", "--train", train]
    words += ["--workdir", str(tmp_path / "run"), *FAST]
    assert main([*words, "train.microbatches=2"]) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    errors = [
        row["heldout_squared_error"] for row in map(json.loads, lines) if "heldout_loss" in row
    ]
    assert errors[-1] < 0.8 * errors[0]
    assert main(["evaluate", "--workdir", str(tmp_path / "run"), "--labelled", train]) == 0
    printed = capsys.readouterr().out
    assert "teacher_cosine" in printed and "perplexity" not in printed
    records = [record | {"vector": [1, 2]} for record in records]
    narrow = write_json_lines(tmp_path / "narrow.jsonl", records)
    words[6] = narrow
    assert main([*words[:7], "--workdir", str(tmp_path / "other"), *FAST]) == 2
    expected = "a vector of 2 components; those of the model have 32: write"
    assert expected in capsys.readouterr().err


def test_vectors_are_written(embedder, untrained, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("the fox runs\n\nold stone\n")
    words = ["embed", "--input", str(tmp_path / "texts.txt")]
    for workdir, more in ((embedder, []), (embedder, ["--width", "8"]), (untrained, [])):
        output = ["--output", str(tmp_path / "v.npz"), "--overwrite"]
        assert main([*words, "--workdir", str(workdir), *output, *more]) == 0
        with np.load(tmp_path / "v.npz", allow_pickle=False) as file:
            assert file["vectors"].shape == (2, 8 if more else 32)
            np.testing.assert_allclose(np.linalg.norm(file["vectors"], axis=1), 1, atol=1e-6)
    assert "2 texts" in capsys.readouterr().out


def test_a_collection_is_searched_and_scored(embedder, tmp_path, capsys):
    texts = ["the fox runs", "old stone", "the dog sees a river"]
    documents = [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": text} for i, text in enumerate(texts)]
    judged = [{"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in range(3)]
    names = {"corpus": documents, "queries": queries, "qrels": judged}
    files = {
        name: write_json_lines(tmp_path / f"{name}.jsonl", rows) for name, rows in names.items()
    }
    words = ["search", "--workdir", str(embedder), "--corpus", files["corpus"]]
    output = ["--output", str(tmp_path / "found.jsonl")]
    given = ["--queries", files["queries"], "--qrels", files["qrels"]]
    assert main([*words, *given, *output]) == 0
    # A text is nearest to itself.
    assert [line.split() for line in capsys.readouterr().out.splitlines()[-3:]] == [
        ["ndcg@10", "1.0000"],
        ["recall@100", "1.0000"],
        ["mrr@10", "1.0000"],
    ]
    lines = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [line["documents"][0] for line in lines] == ["d0", "d1", "d2"]
    picture = ["--picture", str(tmp_path / "map.png")]
    assert main([*words, "--query", "old stone", *picture]) == 0
    assert "documents: 3, queries: 1" in capsys.readouterr().out
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert main([*words, "--query", "old stone", "--top", "1"]) == 0
    assert "d1  old stone" in capsys.readouterr().out


def test_vectors_of_any_length_are_searched_by_their_cosines(embedder, tmp_path, capsys):
    train = write_json_lines(tmp_path / "pairs.jsonl", make_pairs(64))
    words = ["finetune", "--from", str(embedder), "--task", "embedding", "--train", train]
    words += ["--workdir", str(tmp_path / "run"), *FAST, "train.steps=1", "evaluate.every=1"]
    assert main([*words, "model.normalize=false"]) == 0
    corpus = write_json_lines(tmp_path / "corpus.jsonl", [{"text": "old stone"}, {"text": "fox"}])
    words = ["search", "--workdir", str(tmp_path / "run"), "--corpus", corpus]
    assert main([*words, "--query", "old stone"]) == 0
    assert " 1.000  1  old stone" in capsys.readouterr().out


def test_frozen_vectors_are_classified_and_clustered(embedder, tmp_path, capsys):
    """Texts of different nouns, each several times: their vectors are apart."""
    rows = [
        {"text": f"{word} fox" if word != "the" else "fox", "label": word}
        for word in ("river", "old", "the")
    ]
    file = write_json_lines(tmp_path / "labelled.jsonl", rows * 4)
    words = ["embed", "--workdir", str(embedder)]
    assert main([*words, "--classes", file, "--test", file]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "step 12, 12 texts of 3 classes",
        "accuracy  1.0000",
        "macro_f1  1.0000",
    ]
    assert main([*words, "--classes", file, "--test", file, "--samples", "1"]) == 0
    assert "12 texts of 3 classes, ten draws of 1 of each" in capsys.readouterr().out
    assert main([*words, "--clusters", file]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "v_measure 1.0000"


def test_negatives_are_mined(embedder, tmp_path, capsys):
    pairs = write_json_lines(tmp_path / "pairs.jsonl", make_pairs(16))
    words = ["mine", "--workdir", str(embedder), "--train", pairs, "--margin", "9"]
    assert main([*words, "--output", str(tmp_path / "m.jsonl"), "--negatives", "2"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert "16 of 16 queries" in capsys.readouterr().out
    for line in lines:
        assert len(line["negatives"]) == 2 and line["positive"] not in line["negatives"]
    words = ["finetune", "--from", str(embedder), "--task", "embedding"]
    words += ["--train", str(tmp_path / "m.jsonl"), "--held-out", "0.3"]
    assert main([*words, "--workdir", str(tmp_path / "run"), *FAST, "data.batch_size=8"]) == 0
    assert open_trained(tmp_path / "run").run.data.objective.texts == 4


def test_an_export_is_imported_and_trained_further(embedder, tmp_path):
    export = ["export", "--workdir", str(embedder), "--output", str(tmp_path / "hf")]
    assert main(export) == 0 and main([*export, "--overwrite"]) == 0
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "library_name: sentence-transformers" in card
    assert 'model = SentenceTransformer("FOLDER")' in card
    assert main(["import", str(tmp_path / "hf"), "--workdir", str(tmp_path / "again")]) == 0
    texts = write_json_lines(tmp_path / "texts.jsonl", [{"text": "the fox runs"}])
    vectors = []
    for workdir in (embedder, tmp_path / "again"):
        output = str(tmp_path / f"{workdir.name}.npz")
        words = ["embed", "--workdir", str(workdir), "--input", texts, "--output", output]
        assert main(words) == 0
        with np.load(output, allow_pickle=False) as file:
            vectors.append(file["vectors"])
    np.testing.assert_allclose(*vectors, atol=1e-6)


def test_factors_are_merged_in_an_export(untrained, tmp_path, capsys):
    train = write_json_lines(tmp_path / "pairs.jsonl", make_pairs(64))
    words = ["finetune", "--from", str(untrained), "--task", "embedding", "--train", train]
    words += ["--workdir", str(tmp_path / "run"), *FAST, "train.lora_rank=2", "train.steps=2"]
    assert main([*words, "evaluate.every=2"]) == 0
    export = ["export", "--workdir", str(tmp_path / "run"), "--output", str(tmp_path / "hf")]
    assert main([*export, "--format", "peft"]) == 2
    assert "an embedder is exported whole" in capsys.readouterr().err
    assert main(export) == 0 and (tmp_path / "hf" / "modules.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["embed", "--input", "T", "--output", "v.txt"], "must end in .npz or .safetensors"),
        (["embed", "--input", "T", "--output", "v.npz", "--width", "99"], "--width 99: a vector of"),
        (["embed", "--input", "T", "--output", "v.npz", "--batch-size", "0"], "--batch-size 0: must"),
        (["embed", "--input", "T"], "--input: give --output FILE"),
        (["embed", "--pairs", "T"], "T: has text; expected two texts and a score"),
        (["embed", "--pairs", "T", "--output", "v.npz"], "--output is for the vectors of --input"),
        (["embed", "--classes", "T"], "--classes FILE and --test FILE belong together"),
        (["embed", "--clusters", "T"], "T:1: no column 'label'"),
        (["embed", "--clusters", "T", "--samples", "8"], "--samples 8: at least 1 text of a class"),
        (["search", "--corpus", "T", "--query", "a", "--picture", "x.jpg"], "must end in .png"),
        (["search", "--corpus", "T"], "give --queries FILE, or --query TEXT"),
        (["search", "--corpus", "T", "--query", "a", "--qrels", "Q"], "--qrels: judgements are of"),
        (["search", "--corpus", "T", "--query", "a", "--top", "0"], "--top 0: must be at least 1"),
        (["search", "--corpus", "T", "--query", "a", "--output", "x.txt"], "must end in .jsonl"),
        (["search", "--corpus", "TWICE", "--query", "a"], "TWICE:2: the _id 'a' is taken by"),
        (["search", "--corpus", "T", "--queries", "T", "--qrels", "Q"],
         "Q: 1 names of the query are in no file, the first 'q9'"),
        (["mine", "--train", "T", "--output", "m.jsonl"], "T: has text; expected query and positive"),
        (["mine", "--train", "T", "--output", "m.jsonl", "--negatives", "0"], "--negatives 0: must"),
        (["mine", "--train", "T", "--output", "m.jsonl", "--margin", "0"], "--margin 0: must be abo"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_one_line(words, message, embedder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = {
        "T": [{"text": "the fox"}],
        "TWICE": [{"_id": "a", "text": "b"}] * 2,
        "Q": [{"query-id": "q9", "corpus-id": "1", "score": 1}],
    }
    names = {
        name: write_json_lines(tmp_path / f"{name}.jsonl", rows) for name, rows in files.items()
    }
    given = [names.get(word, word) for word in words]
    assert main([given[0], "--workdir", str(embedder), *given[1:]]) == 2
    error = capsys.readouterr().err
    for name, path in names.items():
        message = message.replace(f"{name}:", f"{path}:") if f"{name}:" in message else message
    assert message in error and "Traceback" not in error
