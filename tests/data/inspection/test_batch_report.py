"""`inspect` passes valid batches and names the property that a tampered batch violates; its exit
status shows it.
"""

import dataclasses
import json

import numpy as np
import pytest

from data.config import Data
from data.inspection.article_checks import split_at_ids
from data.inspection.batch_report import inspect_batches
from data.inspection.damages import compute_span_moments
from data.objectives import (
    BidirectionalLm,
    CausalLm,
    Denoising,
    MaskedDiffusion,
    MaskedLm,
    MaskedNextToken,
    PartitionedFields,
    PermutationLm,
    PrefixLm,
    ReplacedToken,
    SentenceOrder,
    SentencePair,
    SpanCorruption,
    WordsAndPictures,
)
from data.objectives.denoising import compute_poisson_cdf, draw_spans
from data.objectives.masking import Masker
from data.pipeline import Stream
from data.rows import hashing
from data.rows.full_sentences import SentenceRows
from data.vocabulary.field_tokens import find_fields
from pretrain.__main__ import main

OBJECTIVES = {
    "pieces": MaskedLm(length=22, max_predictions=4, rows="documents"),
    "joined": MaskedLm(length=22, max_predictions=4, rows="windows"),
    "sentences": MaskedLm(length=42, max_predictions=6, rows="sentences"),
    "packed": MaskedLm(length=48, max_predictions=7, rows="packed"),
    "masks alone": MaskedLm(length=48, max_predictions=9, mask_rate=0.2, masks_only=True),
    "words": MaskedLm(length=22, max_predictions=4, whole_words=True, rows="documents"),
    "pairs": SentencePair(length=30, max_predictions=5),
    "spans": SpanCorruption(inputs=40),
    "one span": SpanCorruption(inputs=40, noise_density=0.25, mean_span=40),
    "one token left": SpanCorruption(inputs=3, noise_density=0.95, mean_span=3),
    "spans in a mode": SpanCorruption(inputs=40, mode="<extra_id_99>"),
    "diffused": MaskedDiffusion(length=22, rows="windows"),
    "diffused at one rate": MaskedDiffusion(length=48, least_rate=0.3, most_rate=0.3),
    "masked ahead": MaskedNextToken(length=24, max_predictions=8, mask_rate=0.3),
    "parts": PrefixLm(length=22),
    "permuted": PermutationLm(length=22, rows="documents"),
    "permuted pairs": PermutationLm(length=40),
    "next": CausalLm(length=22),
    "next unseparated": CausalLm(length=22, end_of_text=False),
    "next and previous": BidirectionalLm(length=22, characters=0),
    "orders": SentenceOrder(length=30, max_predictions=5),
    "replaced": ReplacedToken(length=22, max_predictions=4, rows="documents"),
    "replaced n-grams": ReplacedToken(
        length=22, max_predictions=4, whole_words=True, ngram=3, rows="windows"
    ),
    "damaged": Denoising(length=66),
    "infilled": Denoising(length=66, shuffled=False),
    "fields": PartitionedFields(length=60),
    "captions": WordsAndPictures(length=30, max_predictions=16),
    "captions of one part": WordsAndPictures(length=30, max_predictions=16, one_sided=1.0),
}
T5 = (
    "spans", "one span", "one token left", "spans in a mode", "parts", "next",
    "next unseparated",
)  # those that need T5's vocabulary, which has an end-of-text token  # fmt: skip

BYTES = ("damaged", "infilled", "masked ahead")  # those that need RoBERTa's vocabulary


@pytest.fixture
def store_of(store, t5_store, bytes_store, article_store, captioned_store):
    """Return store_of(name of an objective): a store that it can read."""
    stores = dict.fromkeys(T5, t5_store) | dict.fromkeys(BYTES, bytes_store)
    stores |= {"fields": article_store, "captions": captioned_store}
    stores |= {"captions of one part": captioned_store}
    return lambda name: stores.get(name, store)


@pytest.fixture
def make(store_of):
    """Return make(name of an objective): a Stream."""

    def make_stream(name):
        data = Data(objective=OBJECTIVES[name], batch_size=16)
        return Stream(store_of(name), data, seed=3)

    return make_stream


def list_failures(report):
    assert report["passed"] == all(check["passed"] for check in report["checks"])
    return [check["name"] for check in report["checks"] if not check["passed"]]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_sound_batches_pass(make, name):
    report = inspect_batches(make(name), step=5, batches=6, rows=3)
    assert (
        list_failures(report) == []
        and len(report["checks"])
        >= (6 if name.startswith(("next", "parts")) else 8 if name == "captions of one part" else 9)
        and len(report["rows"]) == 3
    )
    json.dumps(report)


@pytest.mark.parametrize("mean_span", [1.0, 1.5, 9.0])
def test_as_many_masks_pass_as_spans_are_drawn(bytes_store, mean_span):
    """640 rows: with short spans more masks are drawn than count."""
    objective = Denoising(length=66, noise_density=0.3, mean_span=mean_span)
    stream = Stream(bytes_store, Data(objective=objective, batch_size=64), seed=3)
    assert list_failures(inspect_batches(stream, step=0, batches=10)) == []


@pytest.mark.parametrize(("number", "mean"), [(0, 3.0), (1, 1.0), (7, 1.0), (20, 3.0), (90, 2.5)])
def test_moments_of_the_number_of_spans(number, mean):
    """Against 20,000 rows of drawn spans."""
    _, used_BS = draw_spans(
        hashing.derive_keys(1, np.arange(20_000)),
        np.full(20_000, number),
        compute_poisson_cdf(mean),
        2 * number + 16,
    )
    count_B, (average, variance) = used_BS.sum(axis=1), compute_span_moments(number, mean)
    np.testing.assert_allclose(count_B.mean(), average, atol=4 * (variance / 20_000) ** 0.5 + 1e-9)
    np.testing.assert_allclose(count_B.var(), variance, rtol=0.06, atol=1e-9)


def show_all(batch, stream):
    row, slot = np.nonzero(batch["label_weights"])
    batch["token_ids"][row, batch["masked_positions"][row, slot]] = batch["labels"][row, slot]


def lose_less(batch, stream):
    batch["label_weights"][::2] = 0


def lose_on_padding(batch, stream):
    short = np.flatnonzero(~batch["attention_mask"][:, -1])
    batch["masked_positions"][short, 0] = batch["attention_mask"].shape[1] - 1


def lose_on_specials(batch, stream):
    show_all(batch, stream)
    batch["masked_positions"][:, 0], batch["labels"][:, 0] = 0, stream.vocabulary.cls


def turn_round(batch, stream):
    batch["masked_positions"][:, :2] = batch["masked_positions"][:, 1::-1].copy()


def exceed_vocabulary(batch, stream):
    batch["labels"][0, 1] = stream.vocabulary.size


def widen_weights(batch, stream):
    batch["label_weights"] = batch["label_weights"].astype(np.float64)


def depend_on_the_batch(batch, stream):
    key = "token_ids" if "token_ids" in batch else "encoder_token_ids"
    batch[key] = batch[key][::-1].copy()


def other_text(batch, stream):
    batch["token_ids"][:, 1] += 1


def read_on(batch, stream):
    batch["backward_ids"][:] = batch["token_ids"]
    batch["backward_labels"][:, 1:] = batch["backward_ids"][:, :-1]


def name_next_id(ids, stream):
    """Return other ids of the vocabulary."""
    return np.where(ids + 1 < stream.vocabulary.size, ids + 1, ids - 1)


def skip_word(batch, stream):
    batch["backward_labels"][:, 3] = name_next_id(batch["backward_labels"][:, 3], stream)


def flip_labels(batch, stream):
    batch["next_sentence_labels"] = 1 - batch["next_sentence_labels"]


def always_next(batch, stream):
    batch["next_sentence_labels"][:] = 0


def turn_order(batch, stream):
    batch["sentence_order_labels"] = 1 - batch["sentence_order_labels"]


def always_in_order(batch, stream):
    """Replace the rows with swapped segments by a row that is not swapped."""
    chosen = np.where(
        batch["sentence_order_labels"] == 0,
        np.arange(len(batch["sentence_order_labels"])),
        np.flatnonzero(batch["sentence_order_labels"] == 0)[0],
    )
    for key in batch:
        batch[key] = batch[key][chosen]


def one_segment(batch, stream):
    batch["token_type_ids"][:] = 0


def shift_sentinels(batch, stream):
    for key in ("encoder_token_ids", "labels"):
        batch[key][np.isin(batch[key], stream.vocabulary.sentinels)] -= 1


def swap_tokens(batch, stream):
    batch["labels"][:, 1] = name_next_id(batch["labels"][:, 1], stream)


def leave_out(batch, stream):
    batch["label_weights"][:, -1] = 0


def cut_early(batch, stream):
    batch["encoder_attention_mask"][:, 5:] = False


def write_on(batch, stream):
    batch["labels"][~(batch["label_weights"] > 0)] = 9


def leave_tokens(batch, stream):
    batch["labels"][:] = batch["token_ids"]


def leave_gap(batch, stream):
    batch["label_weights"][:, 3] = 0


def turn_fields(batch, stream):
    """Write the fields of each row that is an article backwards."""
    tokens = find_fields(stream.vocabulary).values()
    for ids, labels, weights in zip(*batch.values()):
        row = np.concatenate([ids[:1], labels[weights > 0]])
        parts = split_at_ids(row, [field.begin for field in tokens])
        row = np.array([i for part in reversed(parts) for i in part])
        ids[: len(row)], labels[: len(row) - 1] = row[: len(ids)], row[1:]


def always_whole(batch, stream):
    """Repeat the row with the most tokens."""
    for key in batch:
        batch[key][:] = batch[key][batch["label_weights"].sum(axis=1).argmax()]


def shrink_uniforms(batch, stream):
    batch["uniforms"] *= 0.9


def judge_padding(batch, stream):
    batch["discriminator_weights"][:] = 1


def unmask_token(batch, stream):
    """In each row, replace one mask by a word of the text."""
    ids = batch["encoder_token_ids"]
    row, first = np.arange(len(ids)), (ids == stream.vocabulary.mask).argmax(axis=1)
    ids[row[first > 0], first[first > 0]] = batch["labels"][first > 0, 1]


def repeat_masks(batch, stream):
    """Add a second mask after each one: as many tokens are hidden as there are masks, plus one."""
    masked = batch["encoder_token_ids"] == stream.vocabulary.mask
    behind = np.roll(masked, 1, axis=1) & (batch["encoder_token_ids"] > stream.vocabulary.eos + 1)
    batch["encoder_token_ids"][behind & ~masked] = stream.vocabulary.mask


def foreign_word(batch, stream):
    batch["encoder_token_ids"][:, 1] = stream.vocabulary.size - 2  # the rarest token


def reverse_text(batch, stream):
    for ids, used in zip(batch["encoder_token_ids"], batch["encoder_attention_mask"]):
        ids[1 : used.sum() - 1] = ids[1 : used.sum() - 1][::-1].copy()


def pad_last(batch, stream):
    batch["encoder_token_ids"][:, -1], batch["encoder_attention_mask"][:, -1] = (
        stream.vocabulary.pad,
        False,
    )


def mask_both(batch, stream):
    """Let the last mask of each row be the first word."""
    row, last = np.arange(len(batch["labels"])), batch["label_weights"].sum(axis=1).astype(int) - 1
    batch["masked_positions"][row, last] = 1


def always_own(batch, stream):
    """Repeat a row with the picture of its own caption."""
    own = (batch["next_sentence_weights"] > 0) & (batch["next_sentence_labels"] == 0)
    for key in batch:
        batch[key][batch["next_sentence_labels"] == 1] = batch[key][own][0]


def always_both(batch, stream):
    batch["next_sentence_weights"][:] = 1


@pytest.mark.parametrize(
    ("name", "tamper", "promise"),
    [
        ("pieces", show_all, "masked as [MASK]"),
        ("pieces", lose_less, "share of tokens masked"),
        ("words", lose_less, "share of tokens masked"),
        ("pieces", lose_on_padding, "losses on padding, tokens in it"),
        ("joined", lose_on_specials, "special tokens masked"),
        ("joined", turn_round, "positions out of order"),
        ("pieces", exceed_vocabulary, "ids in the vocabulary"),
        ("spans", exceed_vocabulary, "ids in the vocabulary"),
        ("damaged", unmask_token, "share of tokens hidden"),
        ("damaged", repeat_masks, "masks for them"),
        ("damaged", swap_tokens, "rows whose target is not the store's text"),
        ("damaged", foreign_word, "inputs with words that are not the text's"),
        ("infilled", reverse_text, "inputs out of order"),
        ("damaged", write_on, "tokens in padding, padding between tokens"),
        ("pieces", widen_weights, "keys, types and shapes"),
        ("pieces", depend_on_the_batch, "two hosts read the rows that one reads"),
        ("spans", depend_on_the_batch, "two hosts read the rows that one reads"),
        ("joined", other_text, "rows whose text is not the store's"),
        ("pairs", other_text, "rows whose text is not the store's"),
        ("next and previous", read_on, "rows whose text is not the store's"),
        ("next and previous", skip_word, "targets that are not the previous word"),
        ("next and previous", swap_tokens, "targets that are not the next word"),
        ("pairs", flip_labels, "labels that are wrong"),
        ("pairs", always_next, "second segments from elsewhere"),
        ("pairs", one_segment, "rows whose segments are not 0 ... 0 1 ... 1"),
        ("orders", turn_order, "labels that are wrong"),
        ("orders", always_in_order, "segments in the other order"),
        ("orders", other_text, "rows whose text is not the store's"),
        ("orders", one_segment, "rows whose segments are not 0 ... 0 1 ... 1"),
        ("replaced", show_all, "masked as itself"),
        ("replaced", shrink_uniforms, "chances below 0.9"),
        ("replaced", judge_padding, "tokens not judged, padding judged"),
        ("spans", shift_sentinels, "sentinels are the tokenizer's <extra_id_0> ..."),
        ("spans", swap_tokens, "rows that do not rebuild the store's text"),
        ("spans", leave_out, "losses on padding, tokens without loss"),
        ("spans", pad_last, "gaps in rows (padding, no </s>)"),
        ("parts", pad_last, "parts without </s> at their end"),
        ("parts", swap_tokens, "rows that do not rebuild the store's text"),
        ("parts", cut_early, "texts cut in their first half"),
        ("parts", write_on, "tokens in padding, padding between tokens"),
        ("next", exceed_vocabulary, "ids in the vocabulary"),
        ("next", other_text, "rows whose text is not the store's"),
        ("next unseparated", other_text, "rows whose text is not the store's"),
        ("next", leave_tokens, "targets that are not the next token"),
        ("next", leave_out, "tokens without loss"),
        ("fields", leave_tokens, "targets that are not the next token"),
        ("fields", leave_gap, "losses after padding"),
        ("fields", swap_tokens, "rows with a field that is not the store's"),
        ("fields", turn_fields, "rows that are not two sets of fields, each in order"),
        ("fields", always_whole, "bodies alone"),
        ("captions", mask_both, "masks in the other part"),
        ("captions", always_own, "pictures of others"),
        ("captions", always_both, "labels that are wrong"),
        ("captions", flip_labels, "labels that are wrong"),
        ("captions", one_segment, "rows whose segments are not 0 ... 0 1 ... 1"),
        ("captions", swap_tokens, "rows whose tokens are not the store's"),
        ("captions", show_all, "masked as [MASK]"),
        ("captions", lose_less, "share of tokens masked"),
    ],
)
def test_a_broken_promise_is_named(make, name, tamper, promise):
    stream = make(name)
    build = stream.build

    def build_tampered(row_B, key_B):
        batch = build(row_B, key_B)
        tamper(batch, stream)
        return batch

    stream.build = build_tampered
    assert promise in list_failures(inspect_batches(stream))


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("spans", "sentinels are the tokenizer's <extra_id_0> ..."),
        ("spans", "special ids are the tokenizer's"),
        ("pieces", "special ids are the tokenizer's"),
        ("next", "special ids are the tokenizer's"),
    ],
)
def test_another_tokenizer_is_named(make, name, promise):
    """Sentinels are from 32100 in the batch and up to 32099 in the tokenizer."""
    stream = make(name)
    ids = {piece: i + 1 for i, piece in enumerate(stream.vocabulary.pieces)}
    assert promise in list_failures(inspect_batches(stream, token_id=ids.get))


def test_words_masked_in_part_are_named(make, monkeypatch):
    stream = make("words")
    monkeypatch.setattr(
        Masker,
        "choose_words",
        lambda self, tokens_BL, candidate_BL, *_: candidate_BL & (np.arange(22) == 4),
    )
    assert "words masked in part" in list_failures(inspect_batches(stream))


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("pieces", "rows across documents"),
        ("packed", "pieces across documents, or cut where the row had room"),
        ("pairs", "segments across documents"),
        ("orders", "segments across documents"),
    ],
)
def test_rows_across_documents_are_named(make, name, promise):
    stream = make(name)
    starts = stream.split.document_starts
    finer = np.unique(np.concatenate([starts, starts[1:-1] - 3]))
    stream.split = dataclasses.replace(stream.split, document_starts=finer)
    assert promise in list_failures(inspect_batches(stream))


@pytest.mark.parametrize("name", ["joined", "next"])
def test_a_joined_stream_without_separators_is_named(make, name):
    stream = make(name)
    starts = stream.split.document_starts
    stream.split = dataclasses.replace(
        stream.split, document_starts=np.delete(starts, range(1, len(starts) - 1, 2))
    )
    assert "rows with documents not separated" in list_failures(inspect_batches(stream))


def test_rows_that_are_not_full_sentences_are_named(make):
    stream, other = make("sentences"), make("sentences")
    stream.table.length_R = stream.table.length_R - 1
    assert "rows that begin or end within a sentence" in list_failures(inspect_batches(stream))
    narrow = SentenceRows(other.split, other.table.width - 9)
    other.table.start_R, other.table.length_R = narrow.start_R, narrow.length_R
    assert list_failures(inspect_batches(other)) == ["rows with room for the next sentence"]


CONFIG = """
from data.config import Data
from data.objectives import {kind}
from data.rows.ramp import Ramp
from models.config.{file} import {model}
from pretrain.config import Run

def config():
    return Run(model={model}(), data=Data(store={store!r}, objective={objective!r}, batch_size=16))
"""


@pytest.fixture
def config(tmp_path, store_of):
    """Return config(name of an objective): the path of a configuration."""

    def write_config(name):
        objective = OBJECTIVES[name]
        path = tmp_path / f"{name}.py"
        others = {
            "spans": "T5", "one span": "T5", "one token left": "T5", "spans in a mode": "T5",
            "parts": "T5", "next": "Gpt2", "next unseparated": "Gpt", "orders": "Albert",
            "replaced": "Electra", "replaced n-grams": "Electra",
        }  # fmt: skip
        others |= {"permuted": "XLNet", "permuted pairs": "XLNet"}
        others |= dict.fromkeys(BYTES, "Bart") | {"masked ahead": "Gpt2", "fields": "Gpt2"}
        model = f"{others.get(name, 'Bert')}Config"
        kind = type(objective).__name__
        path.write_text(
            CONFIG.format(
                kind=kind,
                model=model,
                file=model[:-6].lower(),
                store=str(store_of(name).path),
                objective=objective,
            )
        )
        return str(path)

    return write_config


# A model of words reads no store of pieces: tests/pretrain/cli/test_elmo.py inspects one of words.
@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "next and previous"])
def test_the_verb_shows_and_checks(config, capsys, name):
    assert main(["inspect", config(name), "--step", "3", "--rows", "1", "train.seed=7"]) == 0
    shown = capsys.readouterr().out
    assert "step 3" in shown and "all checks passed" in shown and "FAILED" not in shown
    marks = {
        **{key: ["<extra_id_0>", "targets"] for key in ("spans", "one span", "one token left")},
        "spans in a mode": ["<extra_id_99>", "targets"],
        "masked ahead": ["</s>", "<mask>", "predict"],
        "pairs": ["[SEP]", "label", "predict"],
        "orders": ["[SEP]", "label", "A is"],
        "permuted": ["[SEP]", "[CLS]", "predict"],
        "permuted pairs": ["[SEP]", "[CLS]", "predict"],
        "fields": ["<|begin", "<|end"],
    }
    marks |= {kind: ["inputs", "targets"] for kind in ("parts", *BYTES[:2])} | {
        "next": ["row"],
        "next unseparated": ["row"],
    }
    assert all(mark in shown for mark in marks.get(name, ["[CLS]", "[MASK]", "predict"]))
    assert main(["inspect", config(name), "--step", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] and report["step"] == 3 and len(report["rows"]) == 4


def test_the_verbs_status_is_1_for_a_broken_promise(config, capsys, monkeypatch):
    monkeypatch.setattr(Masker, "replace_tokens", lambda self, targets_BP, key_B: targets_BP)
    assert main(["inspect", config("pieces")]) == 1
    shown = capsys.readouterr().out
    assert "FAILED" in shown and "3 failed" in shown


def test_the_verb_refuses_in_one_line(config, capsys):
    path = config("pieces")
    for words, message in (
        ([path, "data.store="], "names no token store; add data.store=FOLDER"),
        ([path, "data.store=/nowhere"], "/nowhere is not a token store"),
        ([path, "--batches", "0"], "--batches 0"),
        ([path, "--step", "-1"], "step -1: steps are counted from 0"),
        ([path, "--step", "9223372036854775807"], "there are fewer than 2^48"),
        (
            [path, "data.objective.max_predictions=2"],
            "max_predictions=2 is fewer than the 3 tokens",
        ),
    ):
        assert main(["inspect", *words]) == 2
        assert message in capsys.readouterr().err
