"""`score` computes what the public evaluation of BabyLM computes by its three backends.

Each backend tokenizes a sentence with the exported tokenizer, offsets included, and scores the
tokens that end behind the first character. `causal` reads the token at i - 1, `mlm` masks the token
and reads it at i, `mntp` masks it and reads it at i - 1 of a model that attends to both sides. The tokenizer of a decoder is first
given the end of text around a sentence, as docs/babylm.md does.
"""

import dataclasses
import json

import pytest

from data.mixed import Mixed, MixedPart
from data.objectives import CausalLm, MaskedNextToken
from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from models.config.gpt2 import Gpt2Config
from pretrain import api
from pretrain.__main__ import main
from pretrain.training.new_workdir import start_workdir
from tests.pretrain.conftest import make_texts
from tests.pretrain.workdirs import make_trained, write_json_lines

SIZES = dict(length=64, depth=2, width=16, num_heads=2, mlp=24)
BYTES = dict(size=300, algorithm="byte_bpe")
# {backend: the model, what its vocabulary is trained with}
BACKENDS = {
    "causal": (Gpt2Config(vocab=320, **SIZES), BYTES | {"layout": "gpt2"}),
    "mlm": (BertConfig(vocab=128, **SIZES), dict(size=110, layout="bert", algorithm="bpe")),
    "mntp": (Gpt2Config(vocab=320, **SIZES), BYTES | {"layout": "roberta"}),
}
UIDS = ("agreement", "agreement", "articles")
GOOD = ("the old fox runs.", "a river finds the stone.", "the dogs and a fox")
BAD = ("the old fox run.", "a river find the stone.", "the dogs and an fox")
PAIRS = [
    {
        "sentence_good": good,
        "sentence_bad": bad,
        "field": "syntax",
        "linguistics_term": "agreement",
        "UID": uid,
    }
    for good, bad, uid in zip(GOOD, BAD, UIDS, strict=True)
]


def start_run(backend, folder):
    """Begin the workdir of a random model; return its path."""
    config, words = BACKENDS[backend]
    trained = make_trained(config, train_vocabulary(make_texts(400), **words), width=0.3)
    run = trained.run
    if backend == "mntp":
        parts = dict(
            masked=MaskedNextToken(length=32, max_predictions=4), causal=CausalLm(length=32)
        )
        objective = Mixed(tuple(MixedPart(*part) for part in parts.items()))
        run = dataclasses.replace(run, data=dataclasses.replace(run.data, objective=objective))
    start_workdir(folder, run, trained.params, trained.vocabulary)
    return str(folder)


def surround_texts(folder, backend):
    """Let an exported tokenizer put the end of text before a sentence, and behind it for mntp."""
    from tokenizers import Tokenizer, processors

    path = str(folder / "tokenizer.json")
    end = json.loads((folder / "tokenizer_config.json").read_text())["eos_token"]
    tokenizer = Tokenizer.from_file(path)
    form = f"{end} $A {end}" if backend == "mntp" else f"{end} $A"
    special = [(end, tokenizer.token_to_id(end))]
    tokenizer.post_processor = processors.TemplateProcessing(single=form, special_tokens=special)
    tokenizer.save(path)


def score_as_backend(backend, model, tokenizer, text):
    """Return the log probability of a sentence, in a loop over its tokens."""
    import torch

    encoding = tokenizer(text, return_offsets_mapping=True)
    ids, offsets = encoding["input_ids"], encoding["offset_mapping"]
    total = 0.0
    for i, (_, end) in enumerate(offsets):
        if end == 0:
            continue
        row, mask = torch.tensor([ids]), None
        if backend != "causal":
            row[0, i] = tokenizer.mask_token_id
        if backend == "mntp":  # attention to both sides
            mask = {"attention_mask": torch.zeros(1, 1, len(ids), len(ids))}
        with torch.no_grad():
            logits = model(row, **(mask or {})).logits[0, i if backend == "mlm" else i - 1]
        total += float(logits.double().log_softmax(-1)[ids[i]])
    return total


@pytest.mark.more
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_scores_are_those_of_the_backend(backend, tmp_path, capsys):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    workdir, folder = start_run(backend, tmp_path / "run"), tmp_path / "folder"
    api.export(workdir, folder, allow_random_head=True)
    name = "AutoModelForMaskedLM" if backend == "mlm" else "AutoModelForCausalLM"
    model = getattr(transformers, name).from_pretrained(folder, attn_implementation="eager")
    if backend != "mlm":
        surround_texts(folder, backend)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    right, way = 0, "likelihood" if backend == "causal" else "masked"
    for pair, found in zip(PAIRS, api.score(workdir, PAIRS, by=way, allow_random_head=True)):
        good, bad = (
            score_as_backend(backend, model, tokenizer, pair[f"sentence_{kind}"])
            for kind in ("good", "bad")
        )
        assert found["good"]["log_probability"] == pytest.approx(good, abs=1e-4)
        assert found["bad"]["log_probability"] == pytest.approx(bad, abs=1e-4)
        right += good > bad
    capsys.readouterr()
    path = write_json_lines(tmp_path / "pairs.jsonl", PAIRS)
    words = ["--workdir", workdir, "--input", path, "--by", way, "--allow-random-head", "--json"]
    assert main(["score", *words]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["right"], printed["pairs"]) == (right, 3)
    assert {name: one["pairs"] for name, one in printed["groups"].items()} == {
        "agreement": 2,
        "articles": 1,
    }
