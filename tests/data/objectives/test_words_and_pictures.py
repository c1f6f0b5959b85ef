"""Rows of a caption and a picture: their tokens, whose picture it is, and where masks are."""

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives.words_and_pictures import WordsAndPictures
from data.pipeline import Stream

SETTINGS = dict(length=30, max_predictions=16)


def make_stream(store, split="train", batch_size=32, **settings):
    objective = WordsAndPictures(**SETTINGS | settings)
    return Stream(store, Data(objective=objective, batch_size=batch_size), split=split, seed=3)


def read_documents(store, split):
    """Return [(words, visual tokens)] of a split, as lists of ids."""
    part = store.open_split(split)
    parts = np.split(np.asarray(part.tokens), np.asarray(part.sentence_starts)[1:-1])
    return [(a.tolist(), b.tolist()) for a, b in zip(parts[::2], parts[1::2], strict=True)]


def read_rows(stream, steps=20):
    """Yield (words, picture, masked in words, masked in picture, label, weight) of rows."""
    vocabulary = stream.vocabulary
    for step in range(steps):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, stream.objective, len(batch["labels"]), vocabulary)
        for i in range(len(batch["labels"])):
            row, mask = batch["token_ids"][i].copy(), batch["attention_mask"][i]
            used = batch["label_weights"][i] > 0
            places = batch["masked_positions"][i][used]
            row[places] = batch["labels"][i][used]
            row = row[mask].tolist()
            cut = row.index(vocabulary.sep)
            assert row[0] == vocabulary.cls and row[-1] == vocabulary.sep
            types = batch["token_type_ids"][i].tolist()
            assert types == [0] * (cut + 1) + [1] * (len(row) - cut - 1) + [0] * int((~mask).sum())
            yield (
                row[1:cut],
                row[cut + 1 : -1],
                int((places < cut).sum()),
                int((places > cut).sum()),
                int(batch["next_sentence_labels"][i]),
                float(batch["next_sentence_weights"][i]),
            )


def test_rows_are_those_of_the_store(captioned_store):
    """Each row has a caption, and its own picture or another one; masks are where they belong."""
    stream = make_stream(captioned_store)
    documents = read_documents(captioned_store, "train")
    shares, both = np.zeros(3), 0
    pictures_whole = words_whole = 0
    for words, picture, in_words, in_picture, label, weight in read_rows(stream):
        if label:
            assert weight and any(picture == other for _, other in documents)
        else:
            assert (words, picture) in documents
        total = len(words) + len(picture)
        if weight:
            both += 1
            assert in_words + in_picture == round(0.15 * total)
        else:
            assert (in_words == 0) != (in_picture == 0)
            pictures_whole += in_picture == len(picture)
            words_whole += in_words == len(words)
        shares += [weight, label, in_words > 0 and not weight]
    assert shares[0] / 640 == pytest.approx(0.5, abs=0.08)
    assert shares[1] / both == pytest.approx(0.5, abs=0.12)
    assert shares[2] / (640 - both) == pytest.approx(0.5, abs=0.12)
    assert pictures_whole > 0 and words_whole > 0


def test_every_epoch_has_all_captions_once(captioned_store):
    documents = read_documents(captioned_store, "train")
    stream = make_stream(captioned_store, batch_size=1)
    words = [row[0] for row in read_rows(stream, steps=len(documents))]
    assert sorted(words) == sorted(own for own, _ in documents)


def test_pictures_of_others_are_of_any_other_caption(captioned_store):
    """Never its own."""
    stream = make_stream(captioned_store, random_picture=1.0, one_sided=0.0)
    table = stream.table
    row_B = np.zeros(4000, np.int64)
    drawn = table.draw_pairs(row_B, np.arange(4000, dtype=np.uint64), 1.0, 0.0)
    found = {int(start) for start in drawn.picture[0]}
    assert found == {int(start) for start in table.starts_D3[1:, 1]}
    assert all(row[4] == 1 for row in read_rows(stream, steps=2))


def test_shares_of_none_and_all(captioned_store):
    stream = make_stream(captioned_store, random_picture=0.0, one_sided=0.0)
    assert all((label, weight) == (0, 1) for *_, label, weight in read_rows(stream, steps=3))
    stream = make_stream(captioned_store, one_sided=1.0)
    assert all((label, weight) == (0, 0) for *_, label, weight in read_rows(stream, steps=3))


def test_evaluation_batches_have_all_heldout_captions(captioned_store):
    stream = make_stream(captioned_store, split="heldout", batch_size=4)
    count = len(read_documents(captioned_store, "heldout"))
    assert stream.num_rows == count
    batches = [stream.build_evaluation_batch(i) for i in range(stream.num_evaluation_batches)]
    rows = sum(int(batch["label_weights"].any(axis=1).sum()) for batch in batches)
    assert rows == count


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(length=20), "length=20; the longest caption and a picture need 28 tokens"),
        (dict(random_picture=1.5), "random_picture=1.5; a share"),
        (dict(one_sided=-0.1), "one_sided=-0.1; a share"),
        (dict(max_predictions=3), "max_predictions=3 is fewer than the 4"),
    ],
)
def test_settings_out_of_range_are_refused(captioned_store, settings, message):
    with pytest.raises(ValueError, match=message):
        make_stream(captioned_store, **settings)


def test_a_store_of_texts_is_refused(store):
    with pytest.raises(ValueError, match="`prepare-captions FOLDER --output STORE` writes those"):
        make_stream(store)
