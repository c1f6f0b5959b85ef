"""`predict` fills masks as the exported model does, for a text or for a file."""

import dataclasses
import itertools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.vocabulary.load import read_vocabulary, train_vocabulary
from models import build
from models.config.bart import BartConfig
from models.config.bert import BertConfig
from models.config.gpt2 import Gpt2Config
from models.config.roberta import RobertaConfig
from models.config.t5 import T5Config
from models.generation.decoding import Sample
from pretrain import api
from pretrain.__main__ import main
from pretrain.api.importing import make_starting_run
from pretrain.api.predicting import Predictor
from pretrain.cli import predict
from pretrain.convert.read_write import write_model
from pretrain.host.terminal import ERASE_LINE
from pretrain.inference import fill_mask, progress, text_generation
from pretrain.inference.answering import make_answerer
from pretrain.workdir.trained import Trained, open_trained
from pretrain.workdir.workdir import Workdir
from tests.pretrain.inference.test_progress import Terminal
from tests.pretrain.workdirs import draw_params, start_untrained

TEXT = [
    "The quick brown fox jumps over the lazy dog. The fox and the fox.",
    "A cloze is a test in which words are left out of a text, and the reader fills the gaps.",
    "Whoever reads the words before a gap and behind it can often tell what stood there.",
] * 8
BERT = BertConfig(vocab=128, length=40, width=16, depth=2, num_heads=2, mlp=24)
GPT2 = Gpt2Config(vocab=128, length=40, width=16, depth=2, num_heads=2, mlp=24)
T5 = T5Config(vocab=256, width=16, depth=2, decoder_depth=2, num_heads=2, head_width=6, mlp=24)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Return a workdir whose model prefers one word everywhere, "fox", and then "s" as a word's
    end.
    """
    vocabulary = train_vocabulary(TEXT, 110, algorithm="bpe")
    params = draw_params(BERT, 0)
    bias = params["mlm_head"]["bias"] = np.zeros(BERT.vocab, np.float32)
    bias[vocabulary.pieces.index("▁fox")] = 60
    bias[vocabulary.pieces.index("s")] = 55
    bias[127] = 90  # a table row without a token: the likeliest of all, but no answer
    path = tmp_path_factory.mktemp("bert") / "w"
    return start_untrained(path, BERT, vocabulary, params)


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    path = tmp_path_factory.mktemp("t5") / "w"
    vocabulary = train_vocabulary(TEXT, 200, layout="t5", algorithm="bpe")
    return start_untrained(path, T5, vocabulary, draw_params(T5, 1))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """Return a workdir whose likeliest next id often has no token."""
    params = draw_params(GPT2, 2)
    params["embeddings"]["token_embedding"]["embedding"][110:] *= 8
    params["decoder"] = jax.tree.map(
        lambda leaf: 5 * leaf, params["decoder"]
    )  # otherwise it repeats the last token
    path = tmp_path_factory.mktemp("gpt2") / "w"
    vocabulary = train_vocabulary(TEXT, 110, layout="gpt", algorithm="bpe")
    return start_untrained(path, GPT2, vocabulary, params)


@pytest.fixture
def run_predict_verb(capsys):
    """Return say(words...): (status, standard output, standard error) of `predict`."""

    def run_predict(*words):
        status = main(["predict", *map(str, words)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run_predict


# ---- masks -------------------------------------------------------------------


def test_one_mask(bert, run_predict_verb):
    status, out, _ = run_predict_verb(
        "--workdir", bert, "The quick brown [MASK] jumps.", "--top", 2, "--json"
    )
    assert status == 0
    (result,) = [json.loads(line) for line in out.strip().split("\n")]
    assert result["text"] == "The quick brown [MASK] jumps."
    assert result["filled"] == "The quick brown fox jumps."
    ((first, second),) = result["masks"]
    assert (first["word"], first["piece"]) == ("fox", "▁fox") and (
        second["word"],
        second["piece"],
    ) == ("…s", "s")
    assert 0 < second["probability"] < first["probability"] < 1  # row 127 has the rest


def test_output_for_people_is_readable(bert, run_predict_verb):
    status, out, _ = run_predict_verb("--workdir", bert, "The [MASK] and the [MASK].", "the [MASK]")
    assert status == 0
    lines = out.split("\n")
    assert (
        lines[0] == "The [MASK] and the [MASK]."
        and "  The fox and the fox." in lines
        and "  the fox" in lines
    )
    assert "  [1]" in lines and "  [2]" in lines
    assert sum(line.endswith("%  fox") for line in lines) == 3


def test_every_row_has_its_own_answers(bert):
    """Results do not depend on the batch size or on the order of texts of many lengths and numbers
    of masks.
    """
    trained = open_trained(bert)
    trained.params["mlm_head"]["bias"] = trained.params["mlm_head"]["bias"] * 0
    texts = [
        "[MASK]",
        "the [MASK] fox",
        "[MASK] [MASK] [MASK]",
        "A cloze is a [MASK] in which words are [MASK].",
        "a [MASK]",
        "[MASK].",
        "x [MASK]",
    ]
    together = fill_mask.MaskFiller(trained, 4, 3)(texts, [None] * len(texts))
    alone = [fill_mask.MaskFiller(trained, 4, 1)([text], [None])[0] for text in texts]
    for text, a, b in zip(texts, together, alone):
        assert len(a["masks"]) == text.count("[MASK]") and a["filled"] == b["filled"]
        for ours, theirs in zip(a["masks"], b["masks"]):
            assert [x["id"] for x in ours] == [x["id"] for x in theirs]
            np.testing.assert_allclose(
                [x["probability"] for x in ours], [x["probability"] for x in theirs], rtol=1e-5
            )
    assert (
        len({mask[0]["probability"] for result in together for mask in result["masks"]}) > 5
    )  # nor are they all the same


def test_probabilities_are_of_the_whole_vocabulary(bert):
    trained = open_trained(bert)
    trained.params["mlm_head"]["bias"] = trained.params["mlm_head"]["bias"] * 0
    (result,) = fill_mask.MaskFiller(trained, 1000, 1)(["the [MASK]."], [None])
    answers = result["masks"][0]
    assert sorted(answer["id"] for answer in answers) == list(
        range(110)
    )  # the 18 rows beyond have no token
    assert 0.3 < sum(answer["probability"] for answer in answers) < 1
    assert all(a["probability"] >= b["probability"] for a, b in itertools.pairwise(answers))


def test_tokens_fill_masks_as_they_are_written(tmp_path):
    """WordPiece's "##s" is appended to the word before it; a whole word is not."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    config = BertConfig(vocab=9, length=16, width=8, depth=1, num_heads=2, mlp=8)
    params = draw_params(config, 0)
    for best, word, filled in ((7, "…s", "the cats."), (6, "cat", "the cat cat.")):
        params["mlm_head"]["bias"] = np.where(np.arange(9) == best, 90, 0).astype(np.float32)
        trained = Trained(
            Workdir.open(tmp_path),
            make_starting_run(config),
            0,
            params,
            read_vocabulary(tmp_path / "vocab.txt"),
        )
        (result,) = fill_mask.MaskFiller(trained, 1, 1)(["the cat [MASK]."], [None])
        assert (result["masks"][0][0]["word"], result["filled"]) == (word, filled)


def test_bytes_carry_their_blanks(tmp_path):
    """RoBERTa's <mask> includes the blank before it; a token without a leading blank is appended to
    the word before it.
    """
    vocabulary = train_vocabulary(TEXT, 300, layout="roberta", algorithm="byte_bpe")
    config = RobertaConfig(vocab=304, length=24, width=8, depth=1, num_heads=2, mlp=8)
    params = draw_params(config, 0)
    for piece, word, filled in (
        ("Ġfox", "fox", "the quick fox jumps."),
        ("er", "…er", "the quicker jumps."),
    ):
        params["mlm_head"]["bias"] = np.where(
            np.arange(304) == vocabulary.pieces.index(piece), 90, 0
        ).astype(np.float32)
        trained = Trained(Workdir.open(tmp_path), make_starting_run(config), 0, params, vocabulary)
        (result,) = make_answerer(trained, top=1)(["the quick <mask> jumps."], [None])
        assert (result["masks"][0][0]["word"], result["filled"]) == (word, filled)


# ---- files -------------------------------------------------------------------


def test_a_file_of_lines(bert, run_predict_verb, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("The [MASK].\n\n[MASK] is a test.\r\nfoxes and [MASK]", encoding="utf-8")
    status, out, _ = run_predict_verb("--workdir", bert, "--input", source, "--output", target)
    assert status == 0 and "4 texts, step 0" in out
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").strip().split("\n")]
    texts = ["The [MASK].", "", "[MASK] is a test.", "foxes and [MASK]"]
    assert [row["text"] for row in rows] == texts
    assert [row["filled"] for row in rows] == ["The fox.", "", "fox is a test.", "foxes and fox"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.jsonl"]


def test_records_keep_their_other_fields_and_order(bert, run_predict_verb, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "CHUNK", 4)
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    records = [{"id": i, "text": "the quick " * (i % 7) + "[MASK]"} for i in range(11)]
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert (
        run_predict_verb(
            "--workdir", bert, "--input", source, "--output", target, "--batch-size", 3
        )[0]
        == 0
    )
    rows = [json.loads(line) for line in target.read_text().strip().split("\n")]
    assert [(row["id"], row["text"]) for row in rows] == [
        (record["id"], record["text"]) for record in records
    ]


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.txt", "The [MASK].\nThe fox.\n", r"in.txt:2: there is no [MASK] in 'The fox.'"),
        ("in.txt", "[MASK] " * 50, "in.txt:1: 52 tokens with [CLS] and [SEP], the model reads at most 40"),
        ("in.jsonl", '{"text": "[MASK]"}\n{"txt": "[MASK]"}\n', "in.jsonl:2: expected an object with the field text"),
        ("in.jsonl", "[MASK]\n", "in.jsonl:1: not JSON"),
        ("in.jsonl", "[" * 100_000, "in.jsonl:1: not JSON (maximum recursion depth"),
        ("in.jsonl", '{"text": 3}\n', "in.jsonl:1: expected an object"),
        ("in.txt", "", "in.txt: contains no texts"),
        ("in.csv", "text\n\n", "in.csv: contains no texts"),
        ("in.conll", "[MASK] O\n", "in.conll: columns of words are read by models that tag them"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_nothing_is_written(
    bert, run_predict_verb, tmp_path, name, content, message
):
    (tmp_path / name).write_text(content)
    status, _, error = run_predict_verb(
        "--workdir", bert, "--input", tmp_path / name, "--output", tmp_path / "out.jsonl"
    )
    assert status == 2 and message in error
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_who_waits_is_shown_how_far_it_is(bert, run_predict_verb, tmp_path, monkeypatch):
    """Progress is shown inside a chunk, on a terminal only, and leaves no line."""
    monkeypatch.setattr(progress, "SECONDS", 0)
    (tmp_path / "in.txt").write_text("The [MASK].\n" * 5)
    words = (
        "--workdir", bert, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.jsonl",
        "--batch-size", 1,
    )  # fmt: skip
    assert run_predict_verb(*words) == (
        0,
        f"{tmp_path / 'out.jsonl'}: 5 texts, step 0 of {bert}\n",
        "",
    )
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(predict, "CHUNK", 3)
    assert run_predict_verb(*words, "--overwrite")[0] == 0
    shown = sys.stderr.getvalue().split(ERASE_LINE)
    assert (
        [line.split("/")[0] for line in shown[1:]] == ["0", "1", "2", "", "3", "4", ""]
        and shown[3].startswith("2/5 texts  ")
        and shown[3].endswith(" left")
    )


def test_wrong_arguments(bert, t5, gpt2, run_predict_verb, tmp_path):
    (tmp_path / "latin.txt").write_bytes("caf\xe9 [MASK]".encode("latin-1"))
    for words, message in (
        (["--workdir", bert], "either texts"),
        (["--workdir", bert, "a [MASK]", "--input", "x"], "either texts"),
        (["--workdir", bert, "--input", tmp_path / "absent"], "no such file"),
        (["--workdir", bert, "--input", tmp_path / "latin.txt"], "not UTF-8"),
        (["--workdir", tmp_path / "absent", "a [MASK]"], "not a workdir"),
        (["--workdir", bert, "--step", 4, "a [MASK]"], "no checkpoint of step 4"),
        (["--workdir", bert, "--top", 0, "a [MASK]"], "--top 0: must be at least 1"),
        (["--workdir", bert, "--length", 4, "a [MASK]"], "--length is for models that generate"),
        (["--workdir", bert, "--n-best", 2, "a [MASK]"], "--n-best is for answers to questions"),
        (["--workdir", bert, "a gap"], "text 1: there is no [MASK] in 'a gap'"),
        (["--workdir", t5, "a <extra_id_0>", "a [MASK]"], "text 2: there is no <extra_id_0> in 'a [MASK]'"),
        (["--workdir", t5, "--top", 3, "a <extra_id_0>"], "--top is for encoders"),
        (["--workdir", gpt2, "--top", 3, "a"], "--top is for encoders"),
        (["--workdir", gpt2, "--length", 38, "The quick brown fox"],
         "and 38 more (--length), the model reads at most 40: 'The quick"),
    ):  # fmt: skip
        status, _, error = run_predict_verb(*words)
        assert status == 2 and message in error, error


# ---- spans -------------------------------------------------------------------


def test_spans_are_distinguished(t5):
    trained = open_trained(t5)
    spans, vocabulary = text_generation.SpanWriter(trained, 8, 4), trained.vocabulary
    s, word = vocabulary.sentinels, vocabulary.encode
    row = word("the") + [s[0]] + word("fox") + [s[1], s[2], 1]
    written = [
        *word("lost"), s[0], *word("quick brown"), s[2], *word("dog"), 255, s[7], *word("no"),
        1, *word("late"),
    ]  # fmt: skip
    assert spans.split_spans(row, text_generation.cut_at_end(1, written)) == {
        "<extra_id_0>": "quick brown",
        "<extra_id_1>": None,
        "<extra_id_2>": "dog ⁇",
    }
    assert (
        text_generation.fill_spans(
            "a <extra_id_0> c <extra_id_1>", {"<extra_id_0>": "b", "<extra_id_1>": None}
        )
        == "a b c <extra_id_1>"
    )


def test_spans_of_a_workdir(t5, run_predict_verb):
    text = "The <extra_id_0> fox <extra_id_1>."
    status, out, _ = run_predict_verb("--workdir", t5, text, "--length", 12, "--json")
    assert status == 0
    result = json.loads(out)
    assert list(result["spans"]) == ["<extra_id_0>", "<extra_id_1>"] and result["text"] == text
    status, out, _ = run_predict_verb("--workdir", t5, text, "--length", 12)
    assert out.startswith(f"{text}\n  <extra_id_0>  ")


def test_rows_written_together_are_written_as_alone(t5):
    trained = open_trained(t5)
    rows = [
        ids.ids
        for ids in text_generation.SpanWriter(trained, 6, 8).tokenizer.encode_batch(
            ["a <extra_id_0>", "the words " * 4, "fox", "x " * 17]
        )
    ]
    for row, together in zip(rows, text_generation.SpanWriter(trained, 6, 8).generate_ids(rows, 0)):
        assert text_generation.SpanWriter(trained, 6, 1).generate_ids([row], 0) == [together]


# ---- with torch -----------------------------------------------------------------


@pytest.mark.more
def test_answers_are_those_of_the_fill_mask_pipeline(bert, tmp_path):
    pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    trained = open_trained(bert)
    trained.params["mlm_head"]["bias"] = trained.params["mlm_head"]["bias"] * 0
    write_model(tmp_path / "x", BERT, trained.params, trained.vocabulary)
    transformers.utils.logging.disable_progress_bar()
    pipeline = transformers.pipeline(
        "fill-mask", model=str(tmp_path / "x"), device="cpu", top_k=128
    )
    texts = ["The quick [MASK] fox.", "A [MASK] is a test in which words are left out.", "[MASK]"]
    ours = fill_mask.MaskFiller(trained, 110, 4)(texts, [None] * 3)
    for result, theirs in zip(ours, pipeline(texts), strict=True):
        theirs = {answer["token"]: answer["score"] for answer in theirs}
        for answer in result["masks"][0]:
            assert abs(theirs[answer["id"]] - answer["probability"]) < 1e-5


# ---- continuations -----------------------------------------------------------


@pytest.mark.parametrize("model", ["bert", "t5", "gpt2"])
def test_parameters_that_are_no_numbers_predict_nothing(request, model):
    trained = open_trained(request.getfixturevalue(model))
    params = dict(trained.params)
    name = sorted(params)[-1]
    params[name] = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), params[name])
    with pytest.raises(ValueError, match=f"parameters of step 0 are not finite.*{name}.*--step"):
        Predictor(dataclasses.replace(trained, params=params))


def test_a_bias_may_exclude_a_token(bert):
    """Such as in a folder that was imported with --allow-nonfinite."""
    trained = open_trained(bert)
    (((best, *_),),) = (result["masks"] for result in Predictor(trained)(["the [MASK]"]))
    head = dict(trained.params["mlm_head"])
    head["bias"] = jnp.asarray(head["bias"]).at[best["id"]].set(-np.inf)
    changed = dataclasses.replace(trained, params=trained.params | {"mlm_head": head})
    (found,) = Predictor(changed, top=BERT.vocab)(["the [MASK]"])
    shares = {word["id"]: word["probability"] for word in found["masks"][0]}
    assert shares.pop(best["id"], 0) == 0 and np.isfinite([*shares.values()]).all()


def test_a_loaded_checkpoint_compiles_nothing_at_its_second_prediction(bert):
    trained, durations = open_trained(bert), []
    api.predict(trained, "the [MASK]")

    def note_event(event, duration, **_):
        if "backend_compile" in event:
            durations.append(duration)

    jax.monitoring.register_event_duration_secs_listener(note_event)
    try:
        api.predict(trained, "the [MASK]")
        assert not durations
        jax.jit(lambda x: x + len(durations))(np.ones(3))  # the listener hears
        assert durations
    finally:
        jax.monitoring.unregister_event_duration_listener(note_event)


def test_a_text_is_continued_by_its_likeliest_pieces(gpt2, run_predict_verb):
    """Each token is the likeliest by the model's own call on the text so far, and never an id
    without a token.
    """
    trained = open_trained(gpt2)
    model, vocabulary = build(trained.run.model), trained.vocabulary
    text = "The quick brown"
    row = vocabulary.encode(text)
    score = jax.jit(lambda ids: model.apply({"params": trained.params}, ids))
    spare = 0
    for _ in range(7):
        ids = np.array([row + [0] * (40 - len(row))], np.int32)
        scores = np.asarray(score(ids))[0, len(row) - 1]
        spare += scores.argmax() >= 110
        row.append(int(scores[:110].argmax()))
    assert spare and vocabulary.eos not in row
    status, out, _ = run_predict_verb("--workdir", gpt2, text, "--length", 7, "--json")
    assert status == 0
    result = json.loads(out)
    assert result["filled"] == vocabulary.decode(row) == text + result["written"]
    assert (
        run_predict_verb("--workdir", gpt2, text, "--length", 7)[1]
        == f"{text}\n  {result['filled']}\n\n"
    )


def test_rows_are_continued_together_as_alone(gpt2):
    trained = open_trained(gpt2)
    texts = ["the words", "The quick brown fox jumps over", "a", "gap"]
    together = text_generation.ContinuationWriter(trained, 6, 8)(texts, [None] * 4)
    assert together == [
        text_generation.ContinuationWriter(trained, 6, 1)([text], [None])[0] for text in texts
    ]
    assert len({result["written"] for result in together}) > 1


def test_a_continuation_ends_with_its_text(gpt2):
    trained = open_trained(gpt2)
    ours, word, end = (
        text_generation.ContinuationWriter(trained, 6, 8),
        trained.vocabulary.encode,
        trained.vocabulary.eos,
    )
    assert (
        ours.decode_continuation(
            word("the"), text_generation.cut_at_end(end, word("fox") + [end] + word("dog"))
        )
        == " fox"
    )
    assert ours.decode_continuation(word("the"), text_generation.cut_at_end(end, [end])) == ""


def test_an_empty_text_begins_with_the_end_of_one(gpt2, run_predict_verb, monkeypatch):
    """A text begins after the end-of-text token, as GPT-2's do; a vocabulary without one, such as
    GPT's, needs a prompt.
    """
    status, out, _ = run_predict_verb("--workdir", gpt2, "", "--length", 6, "--json")
    trained = open_trained(gpt2)
    vocabulary = trained.vocabulary
    (expected,) = text_generation.ContinuationWriter(trained, 6, 1).generate_ids(
        [[vocabulary.eos]], 0
    )
    assert status == 0 and json.loads(out)["filled"].strip() == vocabulary.decode(expected) != ""
    ours = text_generation.ContinuationWriter(trained, 6, 1)
    monkeypatch.setattr(vocabulary, "eos", None)
    with pytest.raises(
        ValueError,
        match="text 1: there is nothing to continue in '', and the vocabulary has no token that begins a text",
    ):
        ours([""], [None])


# ---- damaged texts -----------------------------------------------------------


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    config = BartConfig(
        vocab=330, length=40, width=16, depth=1, decoder_depth=1, num_heads=2, mlp=24
    )
    path = tmp_path_factory.mktemp("bart") / "w"
    vocabulary = train_vocabulary(TEXT, 320, layout="roberta", algorithm="byte_bpe")
    return start_untrained(path, config, vocabulary, draw_params(config, 4))


def test_a_damaged_text_is_written_whole(bart, run_predict_verb):
    """The text is generated greedily from </s> by the model itself; special tokens are not text."""
    text = "The quick <mask> fox."
    status, out, error = run_predict_verb("--workdir", bart, text, "--length", 6, "--json")
    assert status == 0, error
    trained = open_trained(bart)
    vocabulary, model = trained.vocabulary, build(trained.run.model)
    before, after = vocabulary.encode("The quick"), vocabulary.encode(" fox.")
    row = jnp.array([[vocabulary.bos, *before, vocabulary.mask, *after, vocabulary.eos]])
    apply = jax.jit(
        lambda row, written: model.apply({"params": trained.params}, row, row >= 0, written)
    )
    written = []
    for i in range(6):
        logits = apply(
            row, jnp.array([[*written, *[0] * (6 - i)]])
        )  # positions after i are not read
        written.append(int(logits[0, i].argmax()))
        if written[-1] == vocabulary.eos:
            break
    words = [
        i if i < vocabulary.size else vocabulary.unk
        for i in written
        if i >= vocabulary.size or not vocabulary.special[i]
    ]
    assert json.loads(out) == {"text": text, "filled": vocabulary.decode(words).strip()}
    for length, message in ("41", "up to 41 to write"), ("6", "nothing to mend"):
        assert (
            run_predict_verb("--workdir", bart, "" if length == "6" else text, "--length", length)[
                0
            ]
            == 2
        )
        assert (
            message
            in run_predict_verb(
                "--workdir", bart, "" if length == "6" else text, "--length", length
            )[2]
        )


# ---- generation options --------------------------------------------------------


def test_a_text_is_searched_for_or_drawn(gpt2, run_predict_verb):
    """Each option has an effect: the text differs from the greedy one, or does not repeat itself."""
    text = "the words"

    def generate_text(*options):
        status, out, error = run_predict_verb(
            "--workdir", gpt2, text, "--length", 12, "--json", *options
        )
        assert status == 0, error
        return json.loads(out)["written"]

    greedy = generate_text()
    assert generate_text("--top-k", 1) == generate_text("--beams", 1) == greedy
    drawn = {
        generate_text("--temperature", 3),
        generate_text("--temperature", 3, "--seed", 1),
        generate_text("--temperature", 3, "--top-p", 0.5),
    }
    searched = {
        generate_text("--beams", 3),
        generate_text("--beams", 3, "--no-repeat-ngram", 1),
        generate_text("--no-repeat-ngram", 1),
    }
    assert len(drawn) == 3 and len(searched) == 3 and not drawn & (searched | {greedy})
    assert generate_text("--temperature", 3, "--seed", 1) in drawn


def test_a_text_draws_by_its_number(gpt2):
    """The output for a file does not depend on the batch size, and the same text twice gives two
    samples.
    """
    trained = open_trained(gpt2)
    how = {"strategy": Sample(temperature=2.0), "seed": 3}
    texts = ["the words", "a", "the words", "The quick brown fox jumps over"]
    together = text_generation.ContinuationWriter(trained, 8, 8, **how)(texts, [None] * 4)
    alone = text_generation.ContinuationWriter(trained, 8, 1, **how)
    assert together == [alone([text], [None], number)[0] for number, text in enumerate(texts)]
    assert together[0] != together[2]


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("bert", ("--beams", 2),
         "--beams, --temperature, --top-k, --top-p and --no-repeat-ngram is for models that generate"),
        ("gpt2", ("--beams", 0), "--beams 0: must be at least 1"),
        ("gpt2", ("--top-k", 0), "--top-k 0: must be at least 1"),
        ("gpt2", ("--top-p", 0), "top_p is 0.0; it must be above 0 and at most 1"),
        ("gpt2", ("--temperature", 0), "temperature is 0.0; it must be positive"),
        ("gpt2", ("--beams", 2, "--top-k", 3), "--beams searches for the most probable text, --top-k samples one"),
        ("gpt2", ("--length-penalty", 2), "--length-penalty needs --beams"),
        ("gpt2", ("--seed", 2), "--seed needs sampling"),
        ("gpt2", ("--temperature", 1, "--seed", 2**32), "--seed 4294967296: must be at least 0"),
        ("gpt2", ("--top", 2), "--top is for encoders: the number of predictions per [MASK]. To sample from the most"),
    ],
)  # fmt: skip
def test_options_that_do_not_apply_are_refused(request, run_predict_verb, model, options, message):
    status, _, error = run_predict_verb(
        "--workdir", request.getfixturevalue(model), "the [MASK] words", *options
    )
    assert status == 2 and message in error
