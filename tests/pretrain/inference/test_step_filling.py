"""`predict` with a diffusion model: prompts are left, masks are filled in the order of certainty."""

import dataclasses
import io
import itertools

import jax
import numpy as np
import pytest

from data.objectives import MaskedDiffusion
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.bert import BertConfig
from models.generation.beam_search import BeamSearch
from models.generation.sampling import Sample
from pretrain import api
from pretrain.inference.answering import format_result, make_answerer, make_blank_result
from pretrain.inference.diffusion.filling_picture import COLUMNS, draw_filling, lay_out_words
from pretrain.inference.diffusion.step_filling import StepFiller
from tests.pretrain.workdirs import make_trained

SENTENCES = ["The quick brown fox jumps over the lazy dog.", "A cloze has gaps in its text."]
BERT = BertConfig(vocab=128, length=32, width=16, depth=2, num_heads=2, mlp=24)
TEXTS = ["the [MASK] fox [MASK] over [MASK] dog.", "a gap in"]


@pytest.fixture(scope="module")
def trained():
    words = train_vocabulary(SENTENCES * 8, size=120, layout="bert", algorithm="bpe")
    found = make_trained(BERT, words, width=0.3)
    data = dataclasses.replace(found.run.data, objective=MaskedDiffusion(length=16))
    return dataclasses.replace(found, run=dataclasses.replace(found.run, data=data))


def fill_slowly(trained, text):
    """Return (ids, steps) of the masks of a text, one a step, by the model on the row alone."""
    filler = StepFiller(trained, None, 1)
    ids = np.array(filler.tokenizer.encode(text).ids)
    masks, steps = np.flatnonzero(ids == trained.vocabulary.mask), {}
    apply = jax.jit(build(BERT).apply)
    while len(steps) < len(masks):
        logits, _ = apply({"params": trained.params}, ids[None], np.ones((1, len(ids)), bool))
        shares = np.exp(np.asarray(logits, np.float64)[0])
        shares[:, ~filler.allowed_V] = 0
        full = np.exp(np.asarray(logits, np.float64)[0])[:, filler.allowed_V].sum(axis=-1)
        certainty = {i: shares[i].max() / full[i] for i in masks if i not in steps}
        best = max(certainty, key=certainty.__getitem__)
        steps[best], ids[best] = len(steps) + 1, shares[best].argmax()
    return ids[masks].tolist(), [steps[i] for i in masks]


def test_masks_are_filled_one_a_step_and_the_prompt_is_left(trained):
    allowed = np.flatnonzero(StepFiller(trained, None, 1).allowed_V).tolist()
    assert allowed == np.flatnonzero(~np.asarray(trained.vocabulary.special)).tolist()
    answer = make_answerer(trained, batch_size=4, length=5)
    results = answer(TEXTS, [None, None], 0)
    for text, result in zip(TEXTS, results, strict=True):
        masked = text if "[MASK]" in text else " ".join([text, *["[MASK]"] * 5])
        ids, steps = fill_slowly(trained, masked)
        assert [fill["id"] for fill in result["fills"]] == ids
        assert [fill["step"] for fill in result["fills"]] == steps
        assert not trained.vocabulary.special[ids].any()
        rest = result["filled"]
        for fill in reversed(result["fills"]):
            begin, end = fill["span"]
            assert rest[begin:end] == trained.vocabulary.decode([fill["id"]]).strip("# ")
            rest = rest[:begin] + "[MASK]" + rest[end:]
        assert rest.replace(" ", "") == masked.replace(" ", "")
    assert answer(TEXTS[1:], [None], 1) == results[1:]
    assert format_result(TEXTS[0], results[0]).splitlines() == [
        TEXTS[0],
        f"  {results[0]['filled']}",
    ]
    assert make_blank_result(trained) == {"filled": "", "fills": []}


def test_tokens_side_by_side_are_written_as_one_text(trained):
    filler, pieces = StepFiller(trained, None, 1), list(trained.vocabulary.pieces)
    fox, blank, part = trained.vocabulary.encode("fox"), pieces.index("▁"), pieces.index("o")
    ids = [blank, *fox, blank, part]
    written, spans = filler._write_together(ids)
    assert written == trained.vocabulary.decode(ids).strip() == "fox o"
    assert "".join(written[begin:end] for begin, end in spans) == "foxo"
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    fills = [(i, 0.5, step) for step, i in enumerate(ids, 1)]
    found = filler._describe_fills("a " + "[MASK] " * len(ids) + "end", fills)
    assert found["filled"] == "a fox o end"
    assert found["fills"][0]["span"] == [2, 2]


def test_blocks_steps_and_samples(trained):
    answer = make_answerer(trained, length=6, steps=4, block=3)
    (result,) = answer(["a gap"], [None], 0)
    assert sorted(fill["step"] for fill in result["fills"][:3]) == [1, 1, 2]
    assert sorted(fill["step"] for fill in result["fills"][3:]) == [3, 3, 4]
    first, again, other = (
        make_answerer(trained, length=9, strategy=Sample(2.0), seed=seed)(["a gap"], [None], 0)
        for seed in (1, 1, 2)
    )
    assert first == again != other
    # As many masks as a training row of 16 tokens has room for, by default.
    used = len(StepFiller(trained, None, 1).tokenizer.encode("a gap").ids)
    assert len(make_answerer(trained)(["a gap"], [None], 0)[0]["fills"]) == 16 - used
    # With --top, all masks at once, as from BERT.
    assert len(make_answerer(trained, top=3)(TEXTS[:1], [None], 0)[0]["masks"][0]) == 3


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ({"strategy": BeamSearch(2)}, "a", "--beams is for models that write from left to right"),
        ({"no_repeat_ngram": 2}, "a", "--no-repeat-ngram is for models"),
        ({"length": 40}, "a", "text 1: .* tokens with"),
        (
            {},
            "the quick brown fox jumps over the lazy dog. " * 2,
            "text 1: .* fill a training row of 16",
        ),
        ({"top": 2, "steps": 3}, "a [MASK]", "--steps and --block are for models that learned"),
    ],
)
def test_what_cannot_be_filled_is_refused(trained, options, text, message):
    with pytest.raises(ValueError, match=message):
        make_answerer(trained, **options)([text], [None], 0)


def test_other_models_have_no_steps(trained):
    data = dataclasses.replace(
        trained.run.data, objective=make_trained(BERT, None).run.data.objective
    )
    bert = dataclasses.replace(trained, run=dataclasses.replace(trained.run, data=data))
    with pytest.raises(ValueError, match="--steps and --block .*trained by masked_lm"):
        make_answerer(bert, steps=3)


def test_the_picture_has_each_word_in_its_place():
    fills = [{"span": [4, 7], "step": 2}, {"span": [8, 12], "step": 1}]
    words = lay_out_words("the cat sits there " + "x" * COLUMNS, fills)
    assert [(word.text, word.step, word.column) for word in words] == [
        ("the", 0, 0), ("cat", 2, 4), ("sits", 1, 8), ("there", 0, 13), ("x" * COLUMNS, 0, 0),
    ]  # fmt: skip
    assert [word.line for word in words] == [0, 0, 0, 0, 1]
    pytest.importorskip("matplotlib")
    file = io.BytesIO()
    assert draw_filling("the cat sits", fills, "a $title$", file) == ""
    picture = api.draw_filling({"filled": "the cat sits", "fills": fills}, "a $title$")
    assert picture.png.startswith(b"\x89PNG") and len(picture.png) > 2000
    with pytest.raises(ValueError, match="needs `fills`"):
        api.draw_filling({"filled": "the cat", "masks": []})
