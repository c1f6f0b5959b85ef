"""`score`: log probabilities are those of the model's logits, token by token, and ties are not right."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.mixed import Mixed, MixedPart
from data.objectives import CausalLm, MaskedNextToken
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.bert import BertConfig
from models.config.gpt2 import Gpt2Config
from models.config.t5 import T5Config
from pretrain import api
from pretrain.__main__ import main
from pretrain.api.scoring import ScorerOptions, make_requests, score_requests
from pretrain.config import Mesh
from pretrain.convert import find_model_type
from pretrain.convert.tokenizer import build_tokenizer
from pretrain.inference.scoring.likelihood_bound import draw_masks
from pretrain.inference.scoring.masked_scorers import MaskedScorer
from pretrain.inference.scoring.minimal_pairs import ALL, count_pairs
from pretrain.inference.scoring.text_scoring import Text, TextScorer
from pretrain.kernels.model_hooks import make_model_hooks
from pretrain.mesh.sharding import make_mesh
from pretrain.training.new_workdir import start_workdir
from tests.pretrain.workdirs import make_trained, write_json_lines

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "A cloze is a test in which words are left out of a text, and the reader fills the gaps.",
    "Whoever reads the words before a gap and behind it can often tell what stood there.",
]
SIZES = dict(width=16, num_heads=2, mlp=24)
BERT = BertConfig(vocab=128, length=64, depth=2, **SIZES)
GPT2 = Gpt2Config(vocab=320, length=64, depth=2, **SIZES)
T5 = T5Config(vocab=256, depth=2, decoder_depth=2, head_width=6, **SIZES)
TEXTS = ["The quick fox.", "words are left out of the gap", "the reader fills it"]
PAIRS = [
    {"good": "The fox jumps.", "bad": "The fox jump.", "group": "verbs"},
    {"good": "The words are out.", "bad": "The words is out.", "group": "verbs"},
    {"good": "a gap in it", "bad": "an gap in it", "group": "articles"},
]
# {model: its configuration, what its vocabulary is trained with}
KINDS = {
    "bert": (BERT, dict(size=120, layout="bert", algorithm="bpe")),
    "gpt2": (GPT2, dict(size=300, layout="gpt2", algorithm="byte_bpe")),
    "hybrid": (GPT2, dict(size=300, layout="roberta", algorithm="byte_bpe")),
    "t5": (T5, dict(size=200, layout="t5", algorithm="bpe")),
}


@pytest.fixture(scope="module")
def make_scorer():
    """Return make_scorer(kind, way, params): a scorer of a random model, in float32."""

    def make(kind, way=None, params=None):
        config, words = KINDS[kind]
        trained = make_trained(config, train_vocabulary(SENTENCES * 8, **words), width=0.3)
        if kind == "hybrid":
            masked = MaskedNextToken(length=32, max_predictions=4)
            both = Mixed((MixedPart("causal", CausalLm(length=32)), MixedPart("masked", masked)))
            data = dataclasses.replace(trained.run.data, objective=both)
            trained = dataclasses.replace(trained, run=dataclasses.replace(trained.run, data=data))
        if params:
            trained = dataclasses.replace(trained, params=jax.tree.map(params, trained.params))
        mesh = make_mesh(Mesh(), jax.devices()[:1])
        return TextScorer(trained.with_compute_dtype("float32"), mesh, way, batch_size=4)

    return make


def score(scorer, texts=TEXTS):
    return scorer([Text(f"text {i}", text) for i, text in enumerate(texts)])


def apply_model(scorer, *arguments):
    """Return the log probabilities [B, L, V] of rows, by log-softmax in NumPy."""
    model = build(scorer.trained.run.model)
    apply = jax.jit(lambda params, *rows: model.apply({"params": params}, *rows))
    found = apply(scorer.trained.params, *map(jnp.asarray, arguments))
    logits_BLV = np.asarray(found[0] if isinstance(found, tuple) else found, np.float64)
    return logits_BLV - np.log(np.exp(logits_BLV).sum(-1, keepdims=True))


def find_masked(scorer, ids, copies, places):
    """Return the log probability of each masked token in its own copy of a row."""
    log_p_BLV = apply_model(scorer, copies, np.ones((len(copies), len(ids)), bool))
    return [log_p_BLV[b, i, ids[i]] for b, i in enumerate(places)]


def test_a_bound_is_the_mean_of_its_masked_copies(make_scorer):
    scorer = make_scorer("bert", "bound")
    scorer.draws = 5
    (found,) = score(scorer, TEXTS[:1])
    ids = np.array(encode(scorer, TEXTS[0], True).ids)
    expected = np.zeros(len(ids))
    for draw in draw_masks(len(ids) - 2, 5):
        places = 1 + np.array(draw.places)
        copy = ids.copy()
        copy[places] = scorer.vocabulary.mask
        log_p_LV = apply_model(scorer, copy[None], np.ones((1, len(ids)), bool))[0]
        expected[places] += (len(ids) - 2) / len(places) / 5 * log_p_LV[places, ids[places]]
    np.testing.assert_allclose(found.log_probabilities, expected[1:-1], atol=1e-5)


def encode(scorer, text, specials):
    config = scorer.trained.run.model
    tokenizer = build_tokenizer(scorer.trained.vocabulary, find_model_type(config))
    return tokenizer.encode(text, add_special_tokens=specials)


def test_a_masked_token_has_the_probability_of_its_own_copy(make_scorer):
    scorer = make_scorer("bert")
    for text, found in zip(TEXTS, score(scorer), strict=True):
        ids = encode(scorer, text, True).ids
        places = range(1, len(ids) - 1)
        copies = np.array([ids] * len(places))
        copies[np.arange(len(places)), places] = scorer.vocabulary.mask
        expected = find_masked(scorer, ids, copies, places)
        np.testing.assert_allclose(found.log_probabilities, expected, atol=1e-5)
        assert found.total == pytest.approx(sum(expected), abs=1e-4)
        bits = -sum(expected) / math.log(2) / len(text.encode())
        assert found.bits_per_byte == pytest.approx(bits, rel=1e-5)


def test_within_a_word_the_later_tokens_are_masked_too(make_scorer):
    scorer = make_scorer("bert", "within_word_l2r")
    text = "the foxreaders jumping"
    row = encode(scorer, text, True)
    assert len(row.ids) - 2 > 2 * 3  # words of several tokens
    (found,), places = score(scorer, [text]), range(1, len(row.ids) - 1)
    copies = [
        [
            scorer.vocabulary.mask if j >= i and row.word_ids[j] == row.word_ids[i] else token
            for j, token in enumerate(row.ids)
        ]
        for i in places
    ]
    expected = find_masked(scorer, row.ids, copies, places)
    np.testing.assert_allclose(found.log_probabilities, expected, atol=1e-5)
    (alone,) = score(make_scorer("bert"), [text])
    assert np.abs(found.log_probabilities - alone.log_probabilities).max() > 1e-3


def test_masked_copies_share_rows_and_have_the_same_scores(make_scorer, monkeypatch):
    texts = [*TEXTS, SENTENCES[0], "fox"]
    packed, plain = make_scorer("bert"), make_scorer("bert")
    plain.scorer = MaskedScorer(plain.trained, plain.mesh, make_model_hooks(plain.mesh, []))
    sizes = {}
    for name, scorer in (("packed", packed), ("plain", plain)):
        compute, sizes[name] = scorer.scorer.compute_scores, []

        def count(params, tokens_BL, *rest, compute=compute, seen=sizes[name]):
            seen.append(tokens_BL.shape)
            return compute(params, tokens_BL, *rest)

        monkeypatch.setattr(scorer.scorer, "compute_scores", count)
    for shared, alone in zip(score(packed, texts), score(plain, texts), strict=True):
        np.testing.assert_allclose(shared.log_probabilities, alone.log_probabilities, atol=1e-5)
    rows, positions = (
        {n: sum(f(s) for s in sizes[n]) for n in sizes} for f in (lambda s: s[0], math.prod)
    )
    assert rows["packed"] * 4 <= rows["plain"], sizes
    assert positions["packed"] < 0.75 * positions["plain"], sizes


def test_a_decoder_reads_the_end_of_a_text_first(make_scorer):
    scorer = make_scorer("gpt2")
    for text, found in zip(TEXTS, score(scorer), strict=True):
        ids = encode(scorer, text, False).ids
        (log_p_LV,) = apply_model(scorer, [[scorer.vocabulary.eos, *ids[:-1]]])
        expected = [log_p_LV[i, token] for i, token in enumerate(ids)]
        np.testing.assert_allclose(found.log_probabilities, expected, atol=1e-5)


def test_a_hybrid_predicts_a_masked_token_one_position_early(make_scorer):
    scorer = make_scorer("hybrid", "masked")
    eos, mask = scorer.vocabulary.eos, scorer.vocabulary.mask
    model, variables = build(GPT2), {"params": scorer.trained.params}

    @jax.jit
    def compute_logits(rows, before):
        states = model.apply(variables, rows, masked_positions=before, method="compute_states")
        return model.apply(variables, states, method="compute_logits")

    for text, found in zip(TEXTS, score(scorer), strict=True):
        row = [eos, *encode(scorer, text, False).ids, eos]
        places = np.arange(1, len(row) - 1)
        copies = np.array([row] * len(places))
        copies[np.arange(len(places)), places] = mask
        logits_BV = np.asarray(compute_logits(copies, places[:, None] - 1), np.float64)[:, 0]
        log_p_BV = logits_BV - np.log(np.exp(logits_BV).sum(-1, keepdims=True))
        expected = log_p_BV[np.arange(len(places)), np.array(row)[places]]
        np.testing.assert_allclose(found.log_probabilities, expected, atol=1e-5)
    assert make_scorer("hybrid").way == "likelihood"


def test_the_decoder_of_an_encoder_decoder_writes_the_text_and_its_end(make_scorer):
    scorer = make_scorer("t5")
    (found,) = score(scorer, [TEXTS[1]])
    end = scorer.vocabulary.eos
    target = [*encode(scorer, TEXTS[1], False).ids, end]
    (log_p_LV,) = apply_model(scorer, [[end]], [[True]], [target])
    expected = [log_p_LV[i, token] for i, token in enumerate(target)]
    np.testing.assert_allclose(found.log_probabilities, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_span_is_scored_by_its_own_tokens(make_scorer, kind):
    scorer, text = make_scorer(kind), TEXTS[0]
    (whole,), begin = score(scorer, [text]), text.index("quick")
    (part,) = scorer([Text("here", text, (begin, begin + 5))])
    own = [i for i, (a, b) in enumerate(whole.spans) if a < begin + 5 and b > begin]
    assert 0 < len(own) < len(whole.pieces) and part.num_bytes == 5
    assert part.pieces == [whole.pieces[i] for i in own]
    np.testing.assert_allclose(part.log_probabilities, whole.log_probabilities[own], atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_model_of_equal_scores_is_never_right(make_scorer, kind):
    scorer = make_scorer(kind, params=np.zeros_like)
    same = [{"good": "q z", "bad": "z q"}, {"good": "z q z", "bad": "q z q"}]
    pairs = make_requests([(f"line {i}", pair) for i, pair in enumerate(same)], ScorerOptions("it"))
    results = score_requests(scorer, pairs)
    assert all(result["tie"] and not result["right"] for result in results)
    totals = [
        tuple(result[name]["log_probability"] for name in ("good", "bad")) for result in results
    ]
    counts = count_pairs(pairs, totals)[ALL]
    assert (counts.pairs, counts.right, counts.ties) == (2, 0, 2) and counts.accuracy == 0


@pytest.fixture(scope="module")
def workdir(make_scorer, tmp_path_factory):
    """Return the workdir of a random BERT."""
    trained = make_scorer("bert").trained
    path = tmp_path_factory.mktemp("runs") / "bert"
    start_workdir(path, trained.run, trained.params, trained.vocabulary)
    return str(path)


def test_the_verb_counts_pairs_by_group_and_writes_each(workdir, tmp_path, capsys):
    rows = [{**pair, "number": i} for i, pair in enumerate(PAIRS)]
    path, output = write_json_lines(tmp_path / "pairs.jsonl", rows), tmp_path / "scores.jsonl"
    picture = tmp_path / "groups.png"
    words = ["score", "--workdir", workdir, "--input", path]
    assert main([*words, "--output", str(output), "--picture", str(picture), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2] and printed["by"] == "masked"
    assert [line["given_good"] for line in lines] == [pair["good"] for pair in PAIRS]
    for line in lines:
        good, bad = (line[name]["log_probability"] for name in ("good", "bad"))
        assert line["right"] == (good > bad) and not line["tie"]
    assert printed["right"] == sum(line["right"] for line in lines)
    assert {name: group["pairs"] for name, group in printed["groups"].items()} == {
        "articles": 1,
        "verbs": 2,
    }
    shares = [group["accuracy"] for group in printed["groups"].values()]
    assert printed["mean_of_groups"] == pytest.approx(np.mean(shares))
    assert picture.read_bytes()[:4] == b"\x89PNG"
    (expected,) = api.score(workdir, [PAIRS[0]])
    assert lines[0]["good"]["log_probability"] == pytest.approx(
        expected["good"]["log_probability"], abs=1e-5
    )
    assert main([*words, "--picture", str(picture)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(words) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[2:]] == ["articles", "verbs", "all"]


def test_the_verb_prints_texts_with_their_sum(workdir, tmp_path, capsys):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([TEXTS[0], "", TEXTS[1]]))
    assert main(["score", "--workdir", workdir, "--input", str(path)]) == 0
    first, second, total = capsys.readouterr().out.splitlines()
    results = api.score(workdir, TEXTS[:2])
    assert float(first.split()[0]) == pytest.approx(results[0]["log_probability"], abs=1e-3)
    assert second.endswith(TEXTS[1]) and "2 texts" in total
    assert sum(piece["log_probability"] for piece in results[0]["pieces"]) == pytest.approx(
        results[0]["log_probability"]
    )


@pytest.mark.parametrize(
    ("texts", "words", "message"),
    [
        (["fox"], dict(by="likelihood"), "--by likelihood: this BertConfig scores by masked"),
        (["fox " * 90], {}, r"text 1: \d+ tokens, the model reads at most 64; split the text"),
        ([""], {}, "text 1: there is no token in ''"),
        ([{"text": "fox", "span": [1, 9]}], {}, "text 1: span .* is not in the text of 3"),
        ([{"text": "fox", "span": [1]}], {}, "text 1: span is two numbers"),
        ([PAIRS[0], "fox"], {}, "text 2: is not one of the pairs that the input begins with"),
        ([{"good": "a", "bad": "a"}], {}, "text 1: good and bad are the same text"),
        ([{"good": "a", "bad": 3}], {}, "text 1: expected the field bad, a string"),
        ([PAIRS[0]], dict(group="kind"), "text 1: expected the field kind, a string"),
        ([PAIRS[0]], dict(good="good"), "--good and --bad name the two fields of a pair"),
        (["fox"], dict(batch_size=0), "--batch-size 0: must be at least 1"),
        ([3], {}, "text 1: expected a text or a mapping of columns, not int"),
    ],
)
def test_bad_input_is_one_line(workdir, texts, words, message):
    with pytest.raises(ValueError, match=message):
        api.score(workdir, texts, **words)


def test_a_model_that_reads_images_or_classes_scores_no_text(make_scorer):
    trained = make_scorer("t5").trained
    objective = dataclasses.replace(trained.run.data.objective)
    object.__setattr__(objective, "name", "classification")
    data = dataclasses.replace(trained.run.data, objective=objective)
    trained = dataclasses.replace(trained, run=dataclasses.replace(trained.run, data=data))
    with pytest.raises(ValueError, match="this T5Config was trained by classification; `score`"):
        TextScorer(trained, make_mesh(Mesh(), jax.devices()[:1]))


@pytest.mark.more
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_transformers_has_the_same_logits(make_scorer, tmp_path, kind):
    """The exported folder, token by token, in a loop over copies of the text."""
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    scorer, run = make_scorer(kind), tmp_path / "run"
    start_workdir(run, scorer.trained.run, scorer.trained.params, scorer.trained.vocabulary)
    api.export(str(run), tmp_path / "folder", allow_random_head=True)
    name = "AutoModelForMaskedLM" if kind == "bert" else "AutoModelForCausalLM"
    model = getattr(transformers, name).from_pretrained(tmp_path / "folder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    for text, found in zip(TEXTS, score(scorer), strict=True):
        ids = tokenizer(text, add_special_tokens=kind == "bert")["input_ids"]
        if kind == "gpt2":
            row, places = [tokenizer.eos_token_id, *ids], range(1, len(ids) + 1)
        else:
            row, places = ids, range(1, len(ids) - 1)
        total = 0.0
        for i in places:
            copy = torch.tensor([row])
            if kind == "bert":
                copy[0, i] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(copy).logits[0, i if kind == "bert" else i - 1].double()
            total += float(logits.log_softmax(-1)[row[i]])
        assert found.total == pytest.approx(total, abs=1e-4)
