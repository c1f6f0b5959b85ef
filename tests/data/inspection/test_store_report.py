"""`inspect STORE`: sources, lengths, fertility and repeated texts, against counts of the text."""

import collections
import json
import re

import numpy as np
import pytest
import sentencepiece

from data.inspection import store_report
from data.inspection.store_report import choose_evenly, find_phrases
from data.prepare.build import PrepareRequest, prepare_store
from pretrain.__main__ import main

REPEATED = "This page was made by the machine of the old garden. "


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, texts):
    """A store of two sources, one of them with letters that its vocabulary lacks; the lines."""
    folder = tmp_path_factory.mktemp("looked_at")
    lines = {
        "plain": [f"{text} {REPEATED}{text[:-1]}" for text in texts[:120]],
        "rare": [
            f"{text} {chr(0x4E00 + i)}" if i % 5 else REPEATED
            for i, text in enumerate(texts[200:260])
        ],
    }
    for name, of_source in lines.items():
        (folder / f"{name}.txt").write_text("\n".join(of_source))
    names = tuple(str(folder / f"{name}.txt") for name in lines)
    request = PrepareRequest(names, vocab_size=110, document="record", held_out=0.2)
    return prepare_store(request, folder / "store").store, lines


def test_fertility_is_that_of_sentencepiece(prepared, capsys):
    store, lines = prepared
    assert main(["inspect", str(store.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    model = sentencepiece.SentencePieceProcessor(
        model_file=str(store.folder / "vocabulary" / "spiece.model")
    )
    for row, of_source in zip(report["sources"], lines.values(), strict=True):
        text = [line.strip() for line in of_source]
        sentences = [part for line in text for part in re.split(r"(?<=\.) ", line)]
        ids = [i for sentence in sentences for i in model.encode(sentence)]
        words, size = (
            sum(map(count, text)) for count in (lambda t: len(t.split()), lambda t: len(t.encode()))
        )
        unknown = ids.count(model.unk_id())
        assert row["tokens_per_word"] == pytest.approx(len(ids) / words)
        assert row["bytes_per_token"] == pytest.approx(size / len(ids))
        assert row["unknown_share"] == pytest.approx(unknown / len(ids))
    assert report["sources"][1]["unknown_share"] > 0.01 > report["sources"][0]["unknown_share"]


def test_lengths_shares_and_repeats_are_those_of_the_texts(prepared, capsys):
    store, lines = prepared
    assert main(["inspect", str(store.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    split = store.open_split("train")
    lengths = np.diff(split.document_starts)
    assert report["documents"] == len(lengths) == report["lengths"]["documents"]
    assert report["lengths"]["mean"] == pytest.approx(lengths.mean())
    quantiles = list(report["lengths"]["quantiles"].values())
    assert (
        quantiles
        == np.quantile(lengths, np.array(store_report.QUANTILES) / 100, method="lower").tolist()
    )
    assert sum(row["tokens"] for row in report["sources"]) == report["tokens"] == len(split.tokens)
    assert sum(row["share"] for row in report["sources"]) == pytest.approx(1)
    first = report["sentences"][0]
    trained = [
        store.vocabulary.decode(split.tokens[a:b].tolist())
        for a, b in zip(split.document_starts, split.document_starts[1:])
    ]
    times = sum(text.count(REPEATED.strip()) for text in trained)
    assert (first["text"], first["count"]) == (REPEATED.strip(), times)
    phrase = report["phrases"][0]
    assert (phrase["text"], phrase["count"]) == (REPEATED.strip(), times)
    assert phrase["words"] == len(REPEATED.split())
    # A smaller sample is of the documents at even distances.
    assert main(["inspect", str(store.path), "--json", "--documents", "7"]) == 0
    report = json.loads(capsys.readouterr().out)
    chosen = [trained[i] for i in choose_evenly(len(trained), 7)]
    assert report["sample"]["documents"] == 7
    assert report["sentences"][0]["count"] == sum(text.count(REPEATED.strip()) for text in chosen)


def test_phrases_are_those_of_a_slow_count():
    rng = np.random.default_rng(0)
    documents = [[f"w{i}" for i in rng.integers(0, 3, size)] for size in (60, 5, 1, 0, 80)]
    counts = collections.Counter(
        tuple(words[i : i + 4]) for words in documents for i in range(len(words) - 3)
    )
    found = find_phrases(documents, 1000, 4)
    assert found[0][0] == max(counts.values())
    for count, size, text in found:
        words = tuple(text.split())
        assert len(words) == size >= 4 and counts[words[:4]] == count
        whole = sum(
            tuple(part[i : i + size]) == words for part in documents for i in range(len(part))
        )
        assert whole == count
    assert find_phrases([["a"] * 3, ["b", "c"]], 5) == [] == find_phrases([], 5)


def test_a_sample_has_even_distances():
    assert choose_evenly(10, 5).tolist() == [1, 3, 5, 7, 9]
    assert choose_evenly(3, 9).tolist() == [0, 1, 2]
    assert len(choose_evenly(10**12, 1000)) == 1000


def test_a_picture_and_what_is_refused(prepared, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    store, _ = prepared
    picture = tmp_path / "store.png"
    command = ["inspect", str(store.path), "--picture", str(picture)]
    assert main(command) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert (
        f"{len(store.open_split('train').document_starts) - 1:,} documents"
        in capsys.readouterr().out
    )
    assert main(command) == 2 and "--overwrite" in capsys.readouterr().err
    assert main(["inspect", str(store.path), "train.steps=1"]) == 2
    assert "train.steps=1 is for a configuration" in capsys.readouterr().err
    assert main(["inspect", str(store.path), "--documents", "0"]) == 2
    assert "--documents 0: from 1 to" in capsys.readouterr().err


def test_the_sample_of_a_vocabulary_follows_the_temperature(tmp_path, texts):
    """Source i has the share n_i^S / sum of n_j^S of the sample, n in bytes."""
    sizes = {}
    for number, count in enumerate((300, 60, 20)):
        path = tmp_path / f"{number}.txt"
        path.write_text("\n".join(f"{texts[i]} {number} {i}" for i in range(count)))
        sizes[str(path)] = sum(len(line) for line in path.read_text().splitlines())
    for power in (1.0, 0.3, 0.0):
        request = PrepareRequest(
            tuple(sizes), temperature=power, sample_size=1500, vocab_size=90, document="record"
        )
        store = prepare_store(request, tmp_path / f"store{power}").store
        weights = np.array([*sizes.values()]) ** power
        sampled = [counts["sampled_bytes"] for counts in store.manifest["text_by_source"]]
        assert sum(sampled) == store.manifest["sampled_bytes"]
        # The last unit of a source that would not fit is left out: a line of at most 100 bytes.
        wanted = 1500 * weights / weights.sum()
        assert all(0 <= want - got < 100 for want, got in zip(wanted, sampled)), (power, sampled)
