"""`evaluate --task`: likelihoods equal the model's row by row, and the prompt is as
requested.
"""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.vocabulary.load import train_vocabulary
from models import build
from models.config.bert import BertConfig
from models.config.gpt2 import Gpt2Config
from models.config.t5 import T5Config
from pretrain.__main__ import main
from pretrain.api.importing import make_starting_run
from pretrain.config import Mesh
from pretrain.inference.in_context import evaluate_task
from pretrain.inference.in_context_tasks import (
    ExamplePool,
    InContextQuestion,
    draw_examples,
    format_prompt,
    join_texts,
    read_questions,
)
from pretrain.mesh.sharding import make_mesh, make_param_sharding
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import Trained
from tests.pretrain.workdirs import draw_params

TEXT = [
    "The quick brown fox jumps over the lazy dog. The fox and the fox.",
    "A cloze is a test in which words are left out of a text, and the reader fills the gaps.",
    "Whoever reads the words before a gap and behind it can often tell what stood there.",
] * 8
GPT2 = Gpt2Config(vocab=128, length=40, width=16, depth=2, num_heads=2, mlp=24)
T5 = T5Config(vocab=256, width=16, depth=2, decoder_depth=2, num_heads=2, head_width=6, mlp=24)
CHOICE = [
    {"context": "The quick brown", "choices": ["fox", "dog and the gap", "test"], "answer": 0},
    {"context": "A cloze is a", "choices": ["reader", "test"], "answer": "test"},
    {"context": "", "choices": ["The fox", "Whoever"], "answer": 1},
    {"context": "The lazy ", "choices": ["dog", "fox jumps over the lazy dog"], "answer": 0},
]
OPEN = [
    {"text": "The quick brown fox jumps over the lazy dog"},
    {"context": "words are left out of a", "answer": "text"},
]


def make_trained(config, seed, size, **vocabulary):
    run = make_starting_run(config)
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, compute_dtype="float32"))
    return Trained(
        None, run, 0, draw_params(config, seed), train_vocabulary(TEXT, size, **vocabulary)
    )


@pytest.fixture(scope="module")
def gpt2():
    return make_trained(GPT2, 2, 110, layout="gpt", algorithm="bpe")


@pytest.fixture(scope="module")
def t5():
    return make_trained(T5, 1, 200, layout="t5", algorithm="bpe")


@pytest.fixture
def questions(tmp_path):
    """Return questions(records): the questions of a file with these records."""

    def write_and_read(records, name="task.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return read_questions(path)

    return write_and_read


def evaluate_questions(trained, questions, mesh=None, **kw):
    mesh = mesh or make_mesh(Mesh(data=1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        return evaluate_task(trained, mesh, questions, **{"pool": questions, "batch_size": 4, **kw})


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    return (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )


apply = jax.jit(
    lambda config, params, *arguments: build(config).apply({"params": params}, *arguments),
    static_argnums=0,
)


def pad_ids(ids, length=64):
    """Return ids as [1, length]: one shape, compiled once."""
    return jnp.array([ids + [0] * (length - len(ids))])


def logs_of(trained, ids):
    """Return log-probabilities [length, V] of the next token after each id of a row."""
    return log_softmax(apply(trained.run.model, trained.params, pad_ids(ids, GPT2.length))[0])


def score_behind(trained, text, choice):
    """Return (log p, whether all tokens are likeliest, number of tokens) of a choice after a text,
    from its own row.
    """
    first = trained.vocabulary.encode(text)
    whole = trained.vocabulary.encode(join_texts(text, choice))
    assert whole[: len(first)] == first  # otherwise the oracle is wrong
    if not first:
        first, whole = [trained.vocabulary.eos], [trained.vocabulary.eos, *whole]
    logs = logs_of(trained, whole)
    at = range(len(first) - 1, len(whole) - 1)
    targets = whole[len(first) :]
    return (
        sum(logs[i, t] for i, t in zip(at, targets)),
        all(logs[i].argmax() == t for i, t in zip(at, targets)),
        len(targets),
    )


def score_decoded(trained, text, choice):
    read, write = (
        [*trained.vocabulary.encode(one), trained.vocabulary.eos] for one in (text, choice)
    )
    valid = jnp.arange(64)[None] < len(read)
    logs = log_softmax(
        apply(trained.run.model, trained.params, pad_ids(read), valid, pad_ids(write))[
            0, : len(write)
        ]
    )
    return (
        logs[np.arange(len(write)), write].sum(),
        bool((logs.argmax(-1) == write).all()),
        len(write),
    )


# ---- likelihoods -------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_choices_are_scored_as_rows_of_their_own(family, request, questions):
    model, oracle = (
        request.getfixturevalue(family),
        {"gpt2": score_behind, "t5": score_decoded}[family],
    )
    asked = questions(CHOICE)
    numbers, found = evaluate_questions(model, asked, answer_context="The")
    alone, expected = [], []
    for question, one in zip(asked, found):
        expected.append([oracle(model, question.context, choice) for choice in question.choices])
        alone.append([oracle(model, "The", choice)[0] for choice in question.choices])
        np.testing.assert_allclose(one["scores"], [p for p, _, _ in expected[-1]], rtol=1e-4)
        assert one["tokens"] == [count for _, _, count in expected[-1]]
    right = [question.answer for question in asked]
    ways = {
        "accuracy": lambda p, count, prior: p,
        "accuracy_per_token": lambda p, count, prior: p / count,
        "accuracy_over_prior": lambda p, count, prior: p - prior,
    }
    for name, way in ways.items():
        chosen = [
            np.argmax([way(p, count, prior) for (p, _, count), prior in zip(*both)])
            for both in zip(expected, alone)
        ]
        assert numbers[name] == np.mean(np.equal(chosen, right)), name
    assert numbers["chance"] == pytest.approx((1 / 3 + 3 / 2) / 4)
    assert (numbers["questions"], numbers["fewer_examples"], numbers["cut"]) == (4, 0, 0)


def test_a_last_word_is_right_where_all_its_tokens_are_the_likeliest(gpt2, questions):
    asked = questions(OPEN)
    assert (asked[0].context, asked[0].choices) == (
        "The quick brown fox jumps over the lazy",
        ("dog",),
    )
    numbers, found = evaluate_questions(gpt2, asked)
    expected = [score_behind(gpt2, question.context, question.choices[0]) for question in asked]
    assert numbers["accuracy"] == np.mean([greedy for _, greedy, _ in expected]) == 0
    assert numbers["perplexity"] == pytest.approx(
        math.exp(-np.mean([p for p, _, _ in expected])), rel=1e-4
    )


@pytest.mark.parametrize(
    ("text", "context", "word"),
    [
        ("he saw\nBob", "he saw\n", "Bob"),
        (" he  saw  Bob\n", " he  saw", "Bob"),
        ("he\nsaw\t Bob", "he\nsaw\t ", "Bob"),
    ],
)
def test_a_last_word_follows_any_white_space(questions, text, context, word):
    """Blanks belong to the word; other white space stays in the context."""
    (question,) = questions([{"text": text}])
    assert (question.context, question.choices) == (context, (word,))


def test_the_models_own_greedy_text_is_right(gpt2, questions):
    words = [word.strip(".,") for word in " ".join(TEXT[:3]).split()]
    for first in words:  # until the likeliest token after one is a word
        ids = gpt2.vocabulary.encode(first)
        piece = int(logs_of(gpt2, ids)[len(ids) - 1].argmax())
        if (
            piece < gpt2.vocabulary.size
            and gpt2.vocabulary.pieces[piece].startswith("▁")
            and len(gpt2.vocabulary.pieces[piece]) > 1
        ):
            break
    else:
        pytest.fail("this model never writes a word")
    word = gpt2.vocabulary.pieces[piece][1:]
    numbers, found = evaluate_questions(
        gpt2,
        questions(
            [{"text": f"{first} {word}"}, {"context": first, "answer": f"{word} {word} {word}"}]
        ),
    )
    assert [one["right"] for one in found] == [True, False] and numbers["accuracy"] == 0.5


def test_white_space_at_the_end_of_a_context_belongs_to_the_choices(questions):
    """In a vocabulary whose words include their leading space, a final space would be a token that
    no text has there.
    """
    bytes_ = make_trained(
        dataclasses.replace(GPT2, vocab=290), 3, 290, layout="gpt2", algorithm="byte_bpe"
    )
    assert bytes_.vocabulary.encode("The lazy ")[-1] != bytes_.vocabulary.encode("The lazy")[-1]
    choices = {"choices": ["dog", "fox jumps"], "answer": 0}
    _, (bare, spaced) = evaluate_questions(
        bytes_, questions([{"context": "The lazy", **choices}, {"context": "The lazy ", **choices}])
    )
    assert spaced == bare


def test_scores_are_the_same_on_a_mesh(gpt2, questions):
    asked = questions(CHOICE)
    plain, found = evaluate_questions(gpt2, asked)
    mesh = make_mesh(Mesh(data=2, fsdp=2, model=2))
    params = jax.tree_util.tree_map_with_path(
        lambda keys, leaf: jax.device_put(
            leaf,
            make_param_sharding(
                jax.tree_util.keystr(keys, simple=True, separator="/"), leaf.shape, mesh
            ),
        ),
        gpt2.params,
    )
    spread, again = evaluate_questions(dataclasses.replace(gpt2, params=params), asked, mesh=mesh)
    assert spread == plain
    for one, other in zip(found, again):
        np.testing.assert_allclose(one["scores"], other["scores"], rtol=1e-4)


# ---- the prompt ----------------------------------------------------------------


def test_examples_are_drawn_from_the_questions_with_other_records():
    """By a plain filter of the pool, in which records repeat."""
    pool = [
        InContextQuestion(f"{i}", {"context": f"{i % 4}"}, f"{i % 4}", ("a",), 0, True)
        for i in range(11)
    ]
    for number, question in enumerate(pool):
        others = [other for other in pool if other.record != question.record]
        rng = np.random.default_rng([5, number])
        expected = [others[i] for i in rng.choice(len(others), 3, replace=False)]
        found = draw_examples(number, question, ExamplePool(pool), 3, 5)
        assert list(map(id, found)) == list(map(id, expected))
    with pytest.raises(ValueError, match="there are only 8 other questions"):
        draw_examples(0, pool[0], ExamplePool(pool), 9, 0)


def test_answered_examples_precede_the_question_and_exclude_it(gpt2, questions):
    asked = questions(CHOICE)
    for number, question in enumerate(asked):
        drawn = [draw_examples(number, question, ExamplePool(asked), 2, seed) for seed in range(20)]
        assert all(
            len(set(map(id, examples))) == 2 and question not in examples for examples in drawn
        )
        assert {id(one) for examples in drawn for one in examples} == {
            id(one) for one in asked if one is not question
        }
        assert drawn[0] == draw_examples(number, question, ExamplePool(asked), 2, 0)
    assert (
        format_prompt(asked[1], [asked[0], asked[3]], "\n")
        == "The quick brown fox\nThe lazy dog\nA cloze is a"
    )
    _, found = evaluate_questions(gpt2, asked[:2], pool=asked[2:], shots=1, delimiter=" ", seed=3)
    for number, (question, one) in enumerate(zip(asked, found)):
        text = format_prompt(
            question, draw_examples(number, question, ExamplePool(asked[2:]), 1, 3), " "
        )
        np.testing.assert_allclose(
            one["scores"],
            [score_behind(gpt2, text, choice)[0] for choice in question.choices],
            rtol=1e-4,
        )


def test_examples_that_do_not_fit_are_left_out_and_a_context_is_cut_on_the_left(gpt2, questions):
    asked = questions(CHOICE)
    numbers, _ = evaluate_questions(gpt2, asked, shots=3, delimiter=" the gap and the reader ")
    assert numbers["fewer_examples"] > 0 and numbers["cut"] == 0
    long = "The quick brown fox jumps over the lazy dog. " * 4
    asked = questions([{"context": long, "choices": ["fox", "dog and the gap"], "answer": 0}])
    numbers, found = evaluate_questions(gpt2, asked)
    assert numbers["cut"] == 1
    whole = [gpt2.vocabulary.encode(join_texts(long, choice)) for choice in asked[0].choices]
    surplus = max(map(len, whole)) - 1 - GPT2.length
    for row, score, count in zip(whole, found[0]["scores"], found[0]["tokens"]):
        row = row[surplus:]
        logs = logs_of(gpt2, row[:-1])
        assert score == pytest.approx(
            sum(logs[i - 1, row[i]] for i in range(len(row) - count, len(row))), rel=1e-4
        )


def test_texts_are_joined_by_one_space():
    pairs = {
        ("a", "b"): "a b", ("a ", "b"): "a b", ("a\n", "b"): "a\nb", ("a", " b"): "a b",
        ("", "b"): "b", ("a", "\nb"): "a\nb", ("今天", "很好"): "今天很好", ("今天，", "很好"): "今天，很好",
        ("วันนี้", "ดี"): "วันนี้ดี", ("今天 is", "很好"): "今天 is 很好", ("今天", "good"): "今天 good",
        ("오늘은", "좋다"): "오늘은 좋다",
    }  # fmt: skip
    assert {pair: join_texts(*pair) for pair in pairs} == pairs


# ---- bad input, and the verb -------------------------------------------------

BAD = [
    ([], "there are no questions"),
    ([{"context": "a"}], ":1: expected the field answer"),
    ([{"choices": ["a", "b"], "answer": 0}], ":1: expected the field context"),
    ([{"context": "a", "choices": ["b"], "answer": 0}], "a list of two strings or more"),
    ([{"context": "a", "choices": ["b", "c"], "answer": 2}], "0 to 1, or one of them; not 2"),
    ([{"context": "a", "choices": ["b", "c"], "answer": True}], "not true"),
    ([{"context": "a", "choices": ["b", "b"], "answer": "b"}], 'not "b"'),
    ([{"context": "a", "choices": ["b", " "], "answer": 0}], "choices has an empty text"),
    ([{"text": "word"}], "a last word and something before it"),
    (
        [{"text": "a b", "answer": "c"}],
        "text is the only field of its form, and there is answer too",
    ),
    ([*CHOICE, OPEN[0]], r":5: has an answer alone, but .*:1 has choices"),
    ([["a"]], ":1: expected a JSON object"),
]


@pytest.mark.parametrize(("records", "message"), BAD, ids=[message for _, message in BAD])
def test_a_file_that_is_no_task_is_reported_with_its_line(questions, records, message):
    with pytest.raises(ValueError, match=message):
        questions(records)


def test_too_few_examples_and_models_that_do_not_write_are_refused(gpt2, questions):
    asked = questions(CHOICE)
    with pytest.raises(
        ValueError,
        match=r":1: 4 examples \(--shots\) are needed, and there are only 3 other questions",
    ):
        evaluate_questions(gpt2, asked, shots=4)
    bert = dataclasses.replace(
        gpt2,
        run=make_starting_run(
            BertConfig(vocab=128, length=40, width=16, depth=2, num_heads=2, mlp=24)
        ),
    )
    with pytest.raises(
        ValueError, match="for models that write .* this BertConfig was trained by masked_lm"
    ):
        evaluate_questions(bert, asked)
    asked = [InContextQuestion("here", {}, "a", ("The fox " * 40, "dog"), 0, False)]
    with pytest.raises(
        ValueError,
        match=r"here: a choice of \d+ tokens leaves no room for a context \(model.length=40\)",
    ):
        evaluate_questions(gpt2, asked)


def test_the_verb_prints_one_object_and_writes_each_question(gpt2, tmp_path, capsys):
    start_workdir(tmp_path / "w", gpt2.run, gpt2.params, gpt2.vocabulary)
    task, output = tmp_path / "task.jsonl", tmp_path / "out.jsonl"
    task.write_text(
        "".join(json.dumps(record | {"id": number}) + "\n" for number, record in enumerate(CHOICE))
    )
    words = ["evaluate", "--workdir", str(tmp_path / "w"), "--task", str(task)]
    assert main([*words, "--shots", "1", "--output", str(output), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["questions"] == 4 and printed["shots"] == 1 and printed["step"] == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["id"] for line in lines] == [0, 1, 2, 3]
    assert printed["accuracy"] == np.mean([line["right"] for line in lines])
    for extra, message in (
        (["--store", "x"], "give --task or --store"),
        (["--shots", "-1"], "--shots -1: must be at least 0"),
    ):
        assert main([*words, *extra]) == 2 and message in capsys.readouterr().err
    assert main([*words[:3], "--shots", "1"]) == 2 and "need --task" in capsys.readouterr().err


@pytest.mark.parametrize("records", [CHOICE, OPEN])
def test_scores_that_are_no_numbers_choose_no_answer(gpt2, questions, records):
    """The largest of several NaN is the first, which may be right."""
    params = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), gpt2.params)
    with pytest.raises(ValueError, match=r"task.jsonl:1: a score is not a number.*another --step"):
        evaluate_questions(dataclasses.replace(gpt2, params=params), questions(records))
