"""Generated text equals `transformers`' `generate` with the same weights, for 20 prompts."""

import dataclasses
import functools
import json
import warnings

import jax
import numpy as np
import pytest

from models.config.gpt2 import Gpt2Config
from models.config.t5 import T5Config
from models.config.t5gemma import T5GemmaConfig
from models.generation.decoding import BeamSearch, Greedy, continue_prompts, generate
from pretrain.convert.read_write import find_converter

torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
transformers = pytest.importorskip(
    "transformers", reason="the extra `peers` is not installed: no transformers"
)

pytestmark = pytest.mark.more
GPT2 = Gpt2Config(vocab=50, length=32, width=24, depth=2, num_heads=3, mlp=40)
T5 = T5Config(
    vocab=50, width=16, depth=2, decoder_depth=2, num_heads=3, head_width=5, mlp=28, buckets=8,
    max_distance=20,
)  # fmt: skip
T5GEMMA = T5GemmaConfig(
    vocab=50, length=32, width=16, depth=2, decoder_depth=3, num_heads=4, num_key_heads=2,
    head_width=6, mlp=28, window=5,  # which rows outgrow
)  # fmt: skip


def find_factor(path):
    """Return a factor by which layers write more than embeddings, and scores reach their cap."""
    if path[-1].key == "embedding":
        return 0.1
    return 20 if path[-2].key == "query" else 2


# Factors that make the tiny models generate many tokens, and end tokens that some rows generate.
MODELS = {
    "gpt2": (GPT2, lambda path: 2, 31),
    "t5": (T5, lambda path: 3, 12),
    "t5_v1_1": (dataclasses.replace(T5, gated=True, tied=False, scan=False), lambda path: 3, 7),
    "t5gemma": (T5GEMMA, find_factor, 49),
}
CASES = {
    "greedy": (Greedy(), None, {}),
    "4 beams": (BeamSearch(4), None, {"num_beams": 4}),
    "3 beams for longer rows, no bigram twice": (BeamSearch(3, 2.0), 2, {"num_beams": 3, "length_penalty": 2.0}),
    "4 beams for shorter rows, no trigram twice": (BeamSearch(4, -1.0), 3, {"num_beams": 4, "length_penalty": -1.0}),
}  # fmt: skip
SEARCHES = [*CASES]
TRIED = [("gpt2", name) for name in (SEARCHES[0], *SEARCHES[2:])]
TRIED += [("t5", SEARCHES[0]), ("t5", SEARCHES[1]), ("t5_v1_1", SEARCHES[-1])]
TRIED += [("t5gemma", SEARCHES[0]), ("t5gemma", SEARCHES[1])]
# Searches that another of the models is asked for: all models share the code of a search.
FOR_THE_BOARD = [("gpt2", SEARCHES[1]), ("t5", SEARCHES[2]), ("t5", SEARCHES[3])]
T = 16
RNG = np.random.default_rng(3)
LENGTHS = RNG.integers(1, 13, 20)
VALID = np.arange(12) < LENGTHS[:, None]
TOKENS = np.where(VALID, RNG.integers(2, 50, VALID.shape), 0).astype(np.int32)


@pytest.fixture(scope="module")
def pair(make, tmp_path_factory):
    """Return pair(name): (our module, our parameters, their model, the end token). One thread: a
    step of theirs is shorter than a synchronisation.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield functools.cache(
        lambda name: _make_pair(make, tmp_path_factory.mktemp(name), *MODELS[name])
    )
    torch.set_num_threads(before)


def _make_pair(make, folder, config, factor, end):
    from safetensors.numpy import save_file

    model, params = make(config)
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.float32(factor(path)) * np.array(leaf), params
    )
    family = find_converter(config)
    vocabulary = type("Vocabulary", (), dict(pad=0, eos=1))
    (folder / "config.json").write_text(json.dumps(family.to_hf_config(config, vocabulary)))
    save_file(family.to_hf(config, params), folder / "model.safetensors", metadata={"format": "pt"})
    kind = getattr(transformers, family.family.require_hugging_face().architecture)
    return model, params, kind.from_pretrained(folder).eval(), end


@pytest.mark.parametrize(("name", "case"), [*TRIED, *FOR_THE_BOARD])
def test_every_token_equals_theirs(pair, request, name, case):
    """They generate prompt by prompt, we all at once. Some rows end and some do not."""
    if (name, case) in FOR_THE_BOARD:
        request.getfixturevalue("whole")
    (model, params, theirs, end), (strategy, n, how) = pair(name), CASES[case]
    decoder = isinstance(model.config, Gpt2Config)
    write = continue_prompts if decoder else generate
    found = write(
        model,
        params,
        TOKENS,
        LENGTHS if decoder else VALID,
        length=T,
        strategy=strategy,
        **({} if decoder else {"start": model.config.start}),
        end=end,
        no_repeat_ngram=n,
    )
    how = (
        how
        | ({} if decoder else {"decoder_start_token_id": model.config.start})
        | {"max_new_tokens": T, "do_sample": False, "eos_token_id": end, "pad_token_id": 0}
        | ({"no_repeat_ngram_size": n} if n else {})
    )
    for row, prompt, length in zip(np.asarray(found), TOKENS, LENGTHS):
        ids = torch.tensor(prompt[None, :length].astype(np.int64))
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # their settings that greedy search ignores
            written = theirs.generate(ids, attention_mask=torch.ones_like(ids), **how)[0].numpy()
        written = written[length if decoder else 1 :]
        assert row.tolist() == [*written, *[0] * (T - len(written))]
    assert 0 < (np.asarray(found) == end).any(1).sum() < 20
