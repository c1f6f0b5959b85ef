"""Scores of answers by SQuAD's definition, and the choice of a span over all windows, against an
exhaustive search.
"""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from data.rows.frames import move_cls_last
from models.config.span_reader import SpanReaderConfig
from pretrain.evaluation import qa_spans
from pretrain.evaluation.task_metrics import METRICS, compute_metrics
from pretrain.inference.tasks import n_best
from pretrain.training.losses import answer_span
from pretrain.training.losses.loss import ScoreTokens


@pytest.mark.parametrize(
    ("predicted", "right", "exact", "f1"),
    [
        ("the Fox", ["fox"], 1, 1),
        ("An  old, fox!", ["old fox"], 1, 1),
        ("theatre", ["atre"], 0, 0),  # articles are removed
        ("U.S.", ["US"], 1, 1),
        ("it's", ["its"], 1, 1),
        ("naïve café", ["Naïve CAFÉ"], 1, 1),
        ("cafe", ["café"], 0, 0),  # accents count
        ("“fox”", ["fox"], 0, 0),  # only ASCII punctuation is removed
        ("fox dog", ["dog", "the fox, dog"], 1, 1),  # the best of several
        ("old fox runs", ["old fox"], 0, 0.8),  # 2 of 3, 2 of 2
        ("fox fox dog", ["fox fox"], 0, 0.8),  # each counted as often as it occurs
        ("fox", ["dog"], 0, 0),
        ("12½ km", ["12½ km home"], 0, 0.8),
    ],
)
def test_an_answer_is_compared_word_by_word(predicted, right, exact, f1):
    for unanswerable in (False, True):
        assert [
            one[0] for one in qa_spans.score_answers([predicted], [right], unanswerable)
        ] == pytest.approx([exact, f1])


@pytest.mark.parametrize(
    ("predicted", "right", "first", "second"),
    [
        ("", [], None, (1, 1)),
        ("fox", [], None, (0, 0)),
        ("", ["fox"], (0, 0), (0, 0)),
        (
            "the",
            ["a"],
            (1, 0),
            (1, 1),
        ),  # neither has words: SQuAD 1.1's script gives F1 0, 2.0's gives 1
        ("fox", ["the", "fox"], (1, 1), (1, 1)),
        ("", ["the", "fox"], (1, 0), (0, 0)),  # 2.0's script cannot score an answer without words
    ],
)
def test_answers_without_words_are_scored(predicted, right, first, second):
    for unanswerable, expected in ((False, first), (True, second)):
        if expected:
            assert (
                tuple(one[0] for one in qa_spans.score_answers([predicted], [right], unanswerable))
                == expected
            )


def slow_threshold(doubts, answered, silent):
    """Return the best mean score over all thresholds between null scores."""
    edges = sorted(doubts)
    between = [edges[0] - 1, *((a + b) / 2 for a, b in itertools.pairwise(edges)), edges[-1] + 1]
    return max(np.where(doubts > one, silent, answered).sum() for one in between)


def test_the_threshold_is_the_best_there_is():
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 60):
        for _ in range(20):
            doubts = rng.integers(-4, 5, size).astype(float)  # many are equal
            silent = rng.integers(0, 2, size).astype(float)
            answered = np.where(silent, 0.0, rng.random(size))
            threshold = qa_spans.find_best_threshold(doubts, answered, silent)
            assert np.where(doubts > threshold, silent, answered).sum() == pytest.approx(
                slow_threshold(doubts, answered, silent)
            )
            assert not (np.abs(doubts - threshold) < 0.4).any()  # never equal to a null score
    ones = np.ones(3)
    assert (
        qa_spans.find_best_threshold(np.array([1.0, 2.0, 3.0]), 0 * ones, ones) == 0.0
        and qa_spans.find_best_threshold(np.array([1.0, 2.0, 3.0]), ones, 0 * ones) == 4.0
    )


def draw_windows(rng, count=9, length=48):
    """Return (logits, batch) of rows with contexts of several lengths, three rows of each question;
    one context exceeds the longest answer.
    """
    context, held = rng.integers(2, 6, count), np.append(rng.integers(1, 12, count - 1), 40)
    valid = np.arange(length) < (context + held + 1)[:, None]
    numbers = {
        "question_ids": np.arange(count) // 3,
        "context_starts": context,
        "context_offsets": np.arange(count) % 3 * 5,
    }
    batch = {key: value.astype(np.int32) for key, value in numbers.items()} | {
        "attention_mask": valid,
        "token_type_ids": (valid & (np.arange(length) >= context[:, None])).astype(np.int32),
        "text_tokens": valid & (np.arange(length) >= context[:, None]),
        "label_weights": np.ones(count, np.float32),
    }
    logits = rng.normal(0, 3, (count, length, 2)).astype(np.float32)
    logits[:, 1] = logits[np.arange(count), context + held] = (
        20  # no answer overlaps the question or [SEP]
    )
    logits[-1, context[-1], 0] = logits[-1, context[-1] + held[-1] - 1, 1] = (
        40  # 40 tokens long: no answer
    )
    return logits, batch


@pytest.mark.parametrize("place", ["first", "last"])
def test_the_best_span_is_the_best_of_all(place):
    rng = np.random.default_rng(1)
    for _ in range(4):
        logits, batch = draw_windows(rng)
        if place == "first":
            rows = np.asarray(jax.jit(answer_span.predict_spans)(logits, batch))
        else:
            moved = move_cls_last(batch | {"labels": np.arange(48) + 0 * batch["token_type_ids"]})
            moved_logits = np.take_along_axis(logits, moved["labels"][..., None], axis=1)
            rows = np.asarray(jax.jit(answer_span.predict_spans)(moved_logits, moved))
        found = qa_spans.select_best_spans(rows, 3)
        for question in range(3):
            best, nulls = [], []
            for row in range(3 * question, 3 * question + 3):
                first, last = (
                    int(batch["context_starts"][row]),
                    int(batch["attention_mask"][row].sum()) - 2,
                )
                shares = np.exp(logits[row, : last + 2].astype(np.float64))
                shares /= shares.sum(axis=0)
                for i in range(first, last + 1):
                    for j in range(i, min(i + 30, last + 1)):
                        at = batch["context_offsets"][row] - first
                        best.append(
                            (
                                logits[row, i, 0] + logits[row, j, 1],
                                i + at,
                                j + at,
                                shares[i, 0] * shares[j, 1],
                            )
                        )
                nulls.append((logits[row, 0].sum(), shares[0].prod()))
            score, begin, end, probability = max(best)
            assert (found.begins[question], found.ends[question]) == (begin, end)
            null, null_probability = min(nulls)
            best_span = (
                found.scores[question],
                found.probabilities[question],
                found.null_scores[question],
                found.null_probabilities[question],
            )
            np.testing.assert_allclose(
                best_span, (score, probability, null, null_probability), rtol=1e-4
            )
    with pytest.raises(ValueError, match="rows of 3 questions, expected 4"):
        qa_spans.select_best_spans(rows, 4)


@pytest.mark.parametrize("count", [1, 4, 99])
def test_the_n_best_answers_are_the_best_texts_of_all(count):
    """The choice equals a search of all spans of three overlapping rows of a context in which most
    texts occur several times.
    """
    logits, batch = draw_windows(np.random.default_rng(3))
    answers, expected = [], {}
    for row in range(3):
        context, held = (
            int(batch["context_starts"][row]),
            int(batch["attention_mask"][row].sum()) - 1 - int(batch["context_starts"][row]),
        )

        def spell_span(first, last, at=int(batch["context_offsets"][row])):
            text = "abc"[(at + first) % 3] * (1 + last - first)
            return text, at + first, at + last + 1

        answers += n_best.find_row_candidates(logits[row], context, held, 3.0, spell_span, count)
        for i in range(held):
            for j in range(i, min(i + 30, held)):
                text, score = (
                    spell_span(i, j)[0],
                    float(logits[row, context + i, 0] + logits[row, context + j, 1]),
                )
                expected[text] = max(score, expected.get(text, -np.inf))
    found = n_best.select_best(answers, count)
    assert [(one.answer, one.score) for one in found] == sorted(
        expected.items(), key=lambda pair: -pair[1]
    )[:count]
    assert all(
        one.probability == pytest.approx(np.exp(one.score - 3))
        and one.end - one.start == len(one.answer)
        for one in found
    )


def test_no_answer_is_placed_by_the_threshold():
    several = [
        n_best.Candidate(text, 0, 1, score, 0.1)
        for text, score in (("a", 5.0), ("b", 3.0), ("c", 1.0))
    ]
    for null, order in (
        (8.1, "-ab"),
        (7.0, "a-b"),
        (4.9, "ab-"),
        (0.0, "abc"),
    ):  # a null score equal to the threshold keeps the answer
        found = n_best.insert_no_answer(several, null, 0.5, 2.0, 3)
        assert "".join(one.answer or "-" for one in found) == order
        assert all(one == ("", None, None, null, 0.5) for one in found if not one.answer)


def test_the_loss_is_the_mean_of_two_over_the_tokens_of_a_row():
    rng = np.random.default_rng(2)
    logits, batch = draw_windows(rng)
    batch["start_positions"], batch["end_positions"] = (
        batch["context_starts"],
        batch["context_starts"] * 0,
    )
    batch["label_weights"][0] = 0
    nats, hits = 0.0, 0.0
    for row in range(1, 9):
        count = int(batch["attention_mask"][row].sum())
        for i, key in enumerate(("start_positions", "end_positions")):
            row_logits, target = logits[row, :count, i].astype(np.float64), batch[key][row]
            nats += (np.log(np.exp(row_logits).sum()) - row_logits[target]) / 2
            hits += (row_logits.argmax() == target) / 2

    def compute_loss(logits):
        sums = answer_span.compute_sums(logits, ScoreTokens(None), batch)
        return sums["answer_span"], sums

    gradient, found = jax.jit(jax.grad(compute_loss, has_aux=True))(logits)
    assert (
        float(found["answer_span"]) == pytest.approx(nats, rel=1e-5)
        and float(found["answer_span_accuracy"]) == hits
    )
    assert np.isfinite(gradient).all()


def test_metrics_are_of_texts(monkeypatch):
    """Four questions: right, partly right, correctly unanswered, wrongly answered; then with the
    best threshold, or a given one.
    """
    contexts = ["the old fox runs", "a dog sleeps", "no", "none here"]
    answers = [["old fox"], ["the dog sleeps", "a dog"], [], []]
    #            question begin end score null total weight
    rows = [
        (0, 1, 2, 9, 1, 10, 1),
        (1, 1, 2, 8, 2, 10, 1),
        (2, 0, 0, 1, 6, 10, 1),
        (3, 0, 1, 5, 4, 10, 1),
        (0, 0, 0, 99, 0, 99, 0),
    ]
    pieces = [
        [(0, 3), (4, 7), (8, 11), (12, 16)],
        [(0, 1), (2, 5), (6, 12)],
        [(0, 2)],
        [(0, 4), (5, 9)],
    ]
    begins, ends = zip(*(span for part in pieces for span in part))
    first = np.array([0, 4, 7, 8])
    stored = type(
        "Stored",
        (),
        {
            "spans_Q6": np.stack([first] * 6, axis=1),
            "begins_T": np.array(begins),
            "ends_T": np.array(ends),
        },
    )
    monkeypatch.setattr("data.store.qa_reader.open_questions", lambda split: stored)
    monkeypatch.setattr(
        "data.store.qa_reader.read_question_texts", lambda split: (contexts, answers)
    )
    names = ("exact_match", "span_f1", "null_threshold")
    objectives = {name: set(METRICS[name].objectives) for name in names}
    written = {"answer_span", "generated answers"}
    assert objectives == {
        "exact_match": written,
        "span_f1": written,
        "null_threshold": {"answer_span"},
    }
    config = SpanReaderConfig(unanswerable=True)
    # "old fox" and "dog sleeps"; the null scores minus the best are -8, -6, 5, -1.
    best = {
        f"{of}_{name}": 1 for of in ("has_answer", "no_answer", "best") for name in ("exact", "f1")
    }
    assert compute_metrics(names, np.float32(rows), config) == pytest.approx(
        {"exact_match": 1, "span_f1": 1, "null_threshold": -3.5} | best
    )
    best |= {"no_answer_exact": 0.5, "no_answer_f1": 0.5}
    given = dataclasses.replace(config, threshold=0.0)
    assert compute_metrics(names, np.float32(rows), given) == pytest.approx(
        {"exact_match": 0.75, "span_f1": 0.75, "null_threshold": 0} | best
    )
    given = dataclasses.replace(config, threshold=-7.0)
    answers[1] = ["a dog sleeps here"]  # and the threshold suppresses the context's dog
    best = {
        "has_answer_exact": 0.5, "has_answer_f1": 0.5, "no_answer_exact": 1, "no_answer_f1": 1,
        "best_exact": 0.75, "best_f1": 0.95,
    }  # fmt: skip
    assert compute_metrics(("span_f1",), np.float32(rows), given) == pytest.approx(
        {"span_f1": 0.75} | best
    )
    assert compute_metrics(("span_f1",), np.float32(rows), config) == pytest.approx(
        {"span_f1": 0.95} | best | {"has_answer_f1": 0.9}
    )
    answers[:2] = [["old fox"], ["the dog sleeps", "a dog"]]
    answers[2:], config = [["no"], ["here"]], SpanReaderConfig()
    assert compute_metrics(names[:2], np.float32(rows), config) == pytest.approx(
        {"exact_match": 0.75, "span_f1": (3 + 2 / 3) / 4}
    )


@pytest.mark.parametrize("place", ["first", "last"])
def test_tokens_of_blanks_alone_are_no_answer(place):
    """SentencePiece has such a token where a blank stands before a character of its own."""
    logits, batch = draw_windows(np.random.default_rng(3))
    row, first = 4, int(batch["context_starts"][4])
    batch["text_tokens"][row, first] = False
    logits[row, first] = 60  # alone, the best span of all
    if place == "last":
        moved = move_cls_last(batch | {"labels": np.arange(48) + 0 * batch["token_type_ids"]})
        logits = np.take_along_axis(logits, moved["labels"][..., None], axis=1)
        batch = moved
    rows = np.asarray(jax.jit(answer_span.predict_spans)(logits, batch))
    begin, end = rows[row, 1:3] - batch["context_offsets"][row]
    assert begin == 0 and end > 0  # with the text after it
    batch["text_tokens"][row] = False  # a window of blanks never has the answer of a question
    rows = np.asarray(jax.jit(answer_span.predict_spans)(logits, batch))
    found = qa_spans.select_best_spans(rows, 3)
    assert found.scores[1] == rows[[3, 5], 3].max()


def test_the_best_answers_have_text():
    logits = np.zeros((6, 2), np.float32)
    logits[2] = 9  # a token of blanks

    def extract_text(first, last):
        text = "ab cd"[first : last + 1].strip()
        return text, first, last + 1

    found = n_best.find_row_candidates(logits, 0, 5, 0.0, extract_text, 20)
    assert "" not in [each.answer for each in found] and len(found) > 5
    answers = n_best.insert_no_answer(found, 20.0, 0.5, 0.0, 4)
    assert [each.answer for each in answers].count("") == 1
