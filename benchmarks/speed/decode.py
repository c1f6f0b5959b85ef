"""Time the generation of one token, with and without the cache, in Cloze and in transformers.

    python benchmarks/speed/decode.py [--rounds 5] [--written 64] [--prompt 64]

GPT-2 small (124 M parameters) and T5-small (61 M), random weights, float32, one thread per core,
greedy, without an end token. The time of a token is a call that generates `--written`
tokens minus a call that generates one (which excludes the prompt), divided by the
difference in tokens. The first table has GPT-2 with batch size 1 after 64 to 512 tokens; "without
the cache" is a call of the model on that many tokens, as needed for each new token. The second
table compares with `generate` of transformers (needs the extra `peers`) with the same weights; the
programs take turns, and the table has the share of equal tokens. Figures are the median of the
rounds and, in brackets, the minimum and the maximum; other load makes rounds longer, never
shorter. A dated section is appended to benchmarks/results/decode.md.
"""

# torch and transformers are optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.harness import (  # noqa: E402
    format_command,
    format_spread,
    format_title,
    int_at_least,
)
from benchmarks.results_pages import add_result  # noqa: E402
from models import build  # noqa: E402
from models.config.gpt2 import Gpt2Config  # noqa: E402
from models.config.t5 import T5Config  # noqa: E402
from models.generation.decoding import continue_prompts, generate, unstack_model  # noqa: E402
from pretrain.convert.read_write import find_converter  # noqa: E402
from pretrain.kernels.model_hooks import make_local_hooks  # noqa: E402

T5_SMALL = T5Config(width=512, depth=6, decoder_depth=6, num_heads=8, head_width=64, mlp=2048)
MODELS = {"GPT-2 small": Gpt2Config(), "T5-small": T5_SMALL}


def init_model(config: Gpt2Config | T5Config) -> tuple[Any, Any]:
    """Return (module, random parameters); the parameters are stacked, as in a training run."""
    model, ids = build(config, **make_local_hooks()), jnp.ones((1, 4), jnp.int32)
    inputs = (ids,) if isinstance(config, Gpt2Config) else (ids, ids > 0, ids)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), *inputs))["params"]
    return model, jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape, np.float32) * 0.05), shapes
    )


def make_generator(model: Any, params: Any, tokens_BM: np.ndarray) -> Callable[[int], np.ndarray]:
    """Return a function of a length that generates ids [B, length] after a prompt."""
    B, M = tokens_BM.shape
    if isinstance(model.config, Gpt2Config):
        return lambda length: np.asarray(
            continue_prompts(model, params, tokens_BM, np.full(B, M), length=length)
        )
    return lambda length: np.asarray(
        generate(model, params, tokens_BM, np.ones((B, M), bool), length=length, end=None)
    )


def make_peer(
    config: Gpt2Config | T5Config, params: Any
) -> Callable[[np.ndarray], Callable[[int], np.ndarray]]:
    """Return the counterpart of `make_generator` in transformers, a function of the prompt."""
    import torch
    import transformers
    from safetensors.numpy import save_file

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    converter = find_converter(config)
    model_class: Any = transformers.GPT2LMHeadModel
    if not isinstance(config, Gpt2Config):
        model_class = transformers.T5ForConditionalGeneration
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        vocabulary = type("Vocabulary", (), dict(pad=0, eos=1))
        (folder / "config.json").write_text(json.dumps(converter.to_hf_config(config, vocabulary)))
        save_file(
            converter.to_hf(config, params), folder / "model.safetensors", metadata={"format": "pt"}
        )
        peer_model = model_class.from_pretrained(folder).eval()
    peer_model.generation_config.eos_token_id = None

    def make_peer_generator(tokens_BM: np.ndarray) -> Callable[[int], np.ndarray]:
        ids = torch.tensor(tokens_BM.astype(np.int64))

        def generate_ids(length: int) -> np.ndarray:
            with torch.inference_mode():
                settings = {"max_new_tokens": length, "do_sample": False, "pad_token_id": 0}
                ids_BL = peer_model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
            return ids_BL[:, -length:].numpy()

        return generate_ids

    return make_peer_generator


def time_call(call: Callable[..., object], *arguments: object) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def time_token(generate_ids: Callable[[int], object], length: int) -> float:
    """Return the milliseconds of a token after the first."""
    return 1000 * (time_call(generate_ids, length) - time_call(generate_ids, 1)) / (length - 1)


def measure_rounds(num_rounds: int, *measures: Callable[[], float]) -> np.ndarray:
    """Return the results [number, measures] of measures in turns, after one call of each."""
    for measure in measures:
        measure()
    return np.array([[measure() for measure in measures] for _ in range(num_rounds)])


def measure_lengths(args: argparse.Namespace) -> Iterator[str]:
    """Yield the rows of the first table."""
    model, params = init_model(MODELS["GPT-2 small"])
    scanned, (model, params) = (model, params), unstack_model(model, params)
    tokens = np.random.default_rng(1).integers(0, 50257, (1, 512)).astype(np.int32)

    @jax.jit
    def compute_last_logits(params: Any, ids: jax.Array) -> jax.Array:
        states_BLD = model.apply({"params": params}, ids, method="compute_states")
        return model.apply({"params": params}, states_BLD[:, -1:], method="compute_logits")

    for num_before in (64, 128, 256, 512):
        prompt = tokens[:, :num_before]
        writers = make_generator(model, params, prompt), make_generator(*scanned, prompt)
        ids = jnp.asarray(prompt)
        measures = [lambda write=write: time_token(write, 33) for write in writers]
        times = measure_rounds(
            args.rounds,
            *measures,
            lambda ids=ids: (
                1000 * time_call(lambda: jax.block_until_ready(compute_last_logits(params, ids)))
            ),
        )
        yield (
            f"| {num_before} | "
            + " | ".join(format_spread(column, ".1f") for column in times.T)
            + " |"
        )


def measure_peers(args: argparse.Namespace) -> Iterator[str]:
    """Yield the rows of the second table."""
    for name, config in MODELS.items():
        model, params = init_model(config)
        make_peer_writer = make_peer(config, params)
        model, params = unstack_model(model, params)
        for B in (1, 8):
            prompt = (
                np.random.default_rng(2)
                .integers(2, config.vocab, (B, args.prompt))
                .astype(np.int32)
            )
            pair = make_generator(model, params, prompt), make_peer_writer(prompt)
            same = np.mean(pair[0](args.written) == pair[1](args.written))
            times = measure_rounds(
                args.rounds,
                *(lambda write=write: time_token(write, args.written) for write in pair),
            )
            our_times, peer_times = times.T
            cells = [
                name,
                str(B),
                format_spread(our_times, ".1f"),
                format_spread(peer_times, ".1f"),
                format_spread(peer_times / our_times, ".2f"),
                f"{same:.1%}",
            ]
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int_at_least(1), default=5)
    parser.add_argument("--written", type=int_at_least(2), default=64)
    parser.add_argument("--prompt", type=int_at_least(1), default=64)
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
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *measure_lengths(args), ""]
    columns = ["model", "batch", "ours, ms", "transformers, ms", "theirs / ours", "same words"]
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *measure_peers(args)]
    versions = (
        f"JAX {jax.__version__}",
        f"PyTorch {torch.__version__}",
        f"transformers {transformers.__version__}",
    )
    note = (
        f"`{format_command()}`: milliseconds a step, in which each row of the batch gets one "
        f"token; {args.written} tokens after {args.prompt} in the second table; the median of "
        f"{args.rounds} rounds and, in brackets, the minimum and the maximum; ratios likewise, "
        "computed in each round."
    )
    add_result("decode", [format_title(load, *versions), "", note, "", *lines])


if __name__ == "__main__":
    main()
