"""How long a token takes that a decoder writes: by how much was written before, with and without the cache, and against `transformers`.

    python benchmarks/decode.py [--rounds 5] [--written 64] [--prompt 64]

GPT-2 small (124 M parameters) and T5-small (61 M), random weights, float32, a thread a core, greedy, no end. A token's time is that of a call
that writes `--written` tokens, less that of one that writes a single one (so reading the prompt is left out), over their difference.
The first table has GPT-2 with a batch of one behind 64 to 512 tokens; `without the cache` is a call of the model on as many tokens, read
again for each new one. The second table compares with `generate` of `transformers` (needs the extra `peers`) on the same weights; the
two take turns, and the share of words that both wrote is in the table. Medians of the rounds, and in brackets the least and the most: a
machine that others use makes rounds longer, not shorter. A dated section is appended to benchmarks/results/decode.md.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.harness import append, at_least, command, spread, title  # noqa: E402
from models import build  # noqa: E402
from models.config.gpt2 import Gpt2Config  # noqa: E402
from models.config.t5 import T5Config  # noqa: E402
from models.generation.generate import extend, generate, unstack_model  # noqa: E402
from pretrain.convert.read_write import converter_of  # noqa: E402
from pretrain.distributed.model_hooks import make_local_hooks  # noqa: E402

T5_SMALL = T5Config(width=512, depth=6, decoder_depth=6, num_heads=8, head_width=64, mlp=2048)
MODELS = {"GPT-2 small": Gpt2Config(), "T5-small": T5_SMALL}


def make(config):
    """(module, random parameters), scanned as a training run leaves them."""
    model, ids = build(config, **make_local_hooks()), jnp.ones((1, 4), jnp.int32)
    read = (ids,) if isinstance(config, Gpt2Config) else (ids, ids > 0, ids)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), *read))["params"]
    return model, jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape, np.float32) * 0.05), shapes
    )


def writer(model, params, tokens_BM):
    """A function length -> ids [B, length]."""
    B, M = tokens_BM.shape
    if isinstance(model.config, Gpt2Config):
        return lambda length: np.asarray(
            extend(model, params, tokens_BM, np.full(B, M), length=length)
        )
    return lambda length: np.asarray(
        generate(model, params, tokens_BM, np.ones((B, M), bool), length=length, end=None)
    )


def peer(config, params):
    """The same weights in `transformers`: a function (tokens_BM) -> (length -> ids)."""
    import torch
    import transformers
    from safetensors.numpy import save_file

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    family, kind = converter_of(config), transformers.GPT2LMHeadModel
    if not isinstance(config, Gpt2Config):
        kind = transformers.T5ForConditionalGeneration
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        vocabulary = type("Vocabulary", (), dict(pad=0, eos=1))
        (folder / "config.json").write_text(json.dumps(family.hf_config(config, vocabulary)))
        save_file(
            family.to_hf(config, params), folder / "model.safetensors", metadata={"format": "pt"}
        )
        theirs = kind.from_pretrained(folder).eval()
    theirs.generation_config.eos_token_id = None

    def with_prompt(tokens_BM):
        ids = torch.tensor(tokens_BM.astype(np.int64))

        def write(length):
            with torch.inference_mode():
                how = {"max_new_tokens": length, "do_sample": False, "pad_token_id": 0}
                found = theirs.generate(ids, attention_mask=torch.ones_like(ids), **how)
            return found[:, -length:].numpy()

        return write

    return with_prompt


def seconds(call, *arguments):
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def per_token(write, length):
    """Milliseconds of a token behind the first."""
    return 1000 * (seconds(write, length) - seconds(write, 1)) / (length - 1)


def rounds_of(number, *measures):
    """[number, measures]: each measure once to compile, then in turns."""
    for measure in measures:
        measure()
    return np.array([[measure() for measure in measures] for _ in range(number)])


def by_length(args):
    """Rows of the first table."""
    model, params = make(MODELS["GPT-2 small"])
    scanned, (model, params) = (model, params), unstack_model(model, params)
    tokens = np.random.default_rng(1).integers(0, 50257, (1, 512)).astype(np.int32)

    @jax.jit
    def last(params, ids):
        states_BLD = model.apply({"params": params}, ids, method="states")
        return model.apply({"params": params}, states_BLD[:, -1:], method="logits")

    for behind in (64, 128, 256, 512):
        prompt = tokens[:, :behind]
        writers = writer(model, params, prompt), writer(*scanned, prompt)
        again = jnp.asarray(prompt)
        measures = [lambda write=write: per_token(write, 33) for write in writers]
        found = rounds_of(
            args.rounds,
            *measures,
            lambda again=again: 1000 * seconds(lambda: jax.block_until_ready(last(params, again))),
        )
        yield f"| {behind} | " + " | ".join(spread(column, ".1f") for column in found.T) + " |"


def against(args):
    """Rows of the second table."""
    for name, config in MODELS.items():
        model, params = make(config)
        theirs, (model, params) = peer(config, params), unstack_model(model, params)
        for B in (1, 8):
            prompt = (
                np.random.default_rng(2)
                .integers(2, config.vocab, (B, args.prompt))
                .astype(np.int32)
            )
            pair = writer(model, params, prompt), theirs(prompt)
            same = np.mean(pair[0](args.written) == pair[1](args.written))
            found = rounds_of(
                args.rounds, *(lambda write=write: per_token(write, args.written) for write in pair)
            )
            ours, their = found.T
            cells = [
                name,
                str(B),
                spread(ours, ".1f"),
                spread(their, ".1f"),
                spread(their / ours, ".2f"),
                f"{same:.1%}",
            ]
            yield f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=at_least(1), default=5)
    parser.add_argument("--written", type=at_least(2), default=64)
    parser.add_argument("--prompt", type=at_least(1), default=64)
    args = parser.parse_args()
    import torch
    import transformers

    load = os.getloadavg()[0]
    columns = [
        "tokens before",
        "with the cache, ms",
        "the same, layers scanned, ms",
        "without the cache, ms",
    ]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *by_length(args), ""]
    columns = ["model", "batch", "ours, ms", "transformers, ms", "theirs / ours", "same words"]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *against(args)]
    versions = (
        f"JAX {jax.__version__}",
        f"PyTorch {torch.__version__}",
        f"transformers {transformers.__version__}",
    )
    note = (
        f"`{command()}`: milliseconds a step, in which each row of the batch gets a token, {args.written} of them behind {args.prompt} in the second table; "
        f"the median of {args.rounds} rounds, and in brackets the least and the most; ratios likewise, of each round's."
    )
    append("decode.md", [title(load, *versions), "", note, "", *lines])


if __name__ == "__main__":
    main()
