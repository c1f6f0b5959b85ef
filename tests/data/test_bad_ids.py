"""Every objective refuses ids outside the vocabulary on the host: on a device they would be NaN or
another token.
"""

import contextlib
import dataclasses

import numpy as np
import pytest

from data import batch_spec, objectives
from data.config import Data
from data.pipeline import Stream
from data.store.reader import Store

OBJECTIVES = {
    "masked_lm": objectives.MaskedLm(length=22, max_predictions=4, rows="documents"),
    "masked_diffusion": objectives.MaskedDiffusion(length=22, rows="documents"),
    "distillation": objectives.Distillation(length=22, max_predictions=4, rows="documents"),
    "sentence_pair": objectives.SentencePair(length=30, max_predictions=5),
    "sentence_order": objectives.SentenceOrder(length=30, max_predictions=5),
    "replaced_token": objectives.ReplacedToken(length=22, max_predictions=4, rows="documents"),
    "causal_lm": objectives.CausalLm(length=16, end_of_text=False),
    "bidirectional_lm": objectives.BidirectionalLm(length=16, characters=0),
    "masked_next_token": objectives.MaskedNextToken(length=20, max_predictions=3),
    "permutation_lm": objectives.PermutationLm(length=22, rows="windows"),
    "span_corruption": objectives.SpanCorruption(inputs=40),
    "prefix_lm": objectives.PrefixLm(length=16),
    "denoising": objectives.Denoising(length=24),
    "seq2seq": objectives.Seq2Seq(length=24, target_length=24),
    "classification": objectives.Classification(length=24),
    "regression": objectives.Regression(length=24),
    "tagging": objectives.Tagging(length=24),
    "multiple_choice": objectives.MultipleChoice(length=24, choices=2),
    "contrastive": objectives.Contrastive(length=24),
    "similarity": objectives.Similarity(length=24),
    "teacher_vectors": objectives.TeacherVectors(length=24, width=3),
    "text2text": objectives.Text2Text(length=24, target_length=24),
    "answer_span": objectives.AnswerSpan(length=24, stride=4, question=8),
    "partitioned_fields": objectives.PartitionedFields(length=24),
    "words_and_pictures": objectives.WordsAndPictures(length=30, max_predictions=16),
}
STORES = {
    "span_corruption": "t5_store",
    "prefix_lm": "t5_store",
    "denoising": "bytes_store",
    "seq2seq": "pair_store",
}
STORES |= {
    "tagging": "tagged_store",
    "multiple_choice": "choice_store",
    "answer_span": "question_store",
    "classification": "labelled_store",
    "regression": "labelled_store",
    "contrastive": "labelled_store",
    "similarity": "labelled_store",
    "teacher_vectors": "vector_store",
}
STORES |= {"text2text": "answered_store", "masked_next_token": "bytes_store"}
STORES |= {"partitioned_fields": "article_store", "words_and_pictures": "captioned_store"}


@pytest.fixture(params=OBJECTIVES)
def make(request):
    """Return make(bad): a stream of each objective on a store in which every id is `bad`, or
    unchanged without it.
    """
    store = request.getfixturevalue(STORES.get(request.param, "store"))

    def open_split(name, bad):
        good = store.open_split(name)
        return (
            good
            if bad is None
            else dataclasses.replace(good, tokens=np.full_like(good.tokens, bad))
        )

    def make_stream(bad=None):
        damaged = Store(store.path, store.manifest, store.folder)
        damaged.open_split = lambda name: open_split(name, bad)
        return Stream(damaged, Data(objective=OBJECTIVES[request.param], batch_size=4))

    return make_stream


def test_every_objective_is_here():
    """But for images, which have no ids."""
    images = {"image_classification", "image_distillation", "masked_patches"}
    assert OBJECTIVES.keys() == objectives.OBJECTIVES.keys() - images


def test_ids_that_the_vocabulary_does_not_have_are_refused(make):
    good = make()
    size = good.vocabulary.size
    good.build_batch(0)
    with pytest.raises(ValueError, match=f"holds the id {size}, but its vocabulary has {size} ids"):
        make(size).build_batch(0)


@pytest.mark.parametrize("bad", [-100, "size"])
def test_a_batch_with_a_bad_id_is_refused_whatever_built_it(make, bad):
    stream = make()
    batch, spec = stream.build_batch(0), (stream.objective, 4, stream.vocabulary)
    batch_spec.check_batch(batch, *spec)
    bad = stream.vocabulary.size if bad == "size" else bad
    fields = stream.objective.describe_batch()
    checked = [key for key, field in fields.items() if field.role == batch_spec.TOKEN_ID]
    assert checked
    for key in checked:
        spoilt = {**batch, key: batch[key].copy()}
        spoilt[key][-1, -1] = bad  # the end of a row, which may be padding
        with pytest.raises(
            ValueError,
            match=f"{key} holds the id {bad}, but the vocabulary has the ids 0 to {stream.vocabulary.size - 1}",
        ):
            batch_spec.check_batch(spoilt, *spec)


def test_the_pipeline_looks(store, monkeypatch):
    stream = Stream(store, Data(objective=OBJECTIVES["masked_lm"], batch_size=4))
    good = stream.build_batch(0)
    monkeypatch.setattr(
        stream, "build_batch", lambda *args: {**good, "labels": good["labels"] - 200}
    )
    with (
        contextlib.closing(stream.iterate_batches()) as source,
        pytest.raises(ValueError, match="labels holds the id -"),
    ):
        next(source)
