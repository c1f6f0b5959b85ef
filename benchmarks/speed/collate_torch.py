"""The worker of benchmarks/speed/collate.py for the peers; it runs in their environment.

collate_torch.py CASES
"""

# torch and transformers are optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import pathlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import itertools

import numpy as np
import torch
import transformers

from benchmarks.harness import answer_messages
from benchmarks.speed.collate_peers import SpanCollator, iterate_sentence_pairs
from benchmarks.speed.ready_ids import ReadyIdsTokenizer

DOCUMENTS = 3000  # documents that sentence pairs are made of
CLS, SEP, MASK, PAD = 2, 3, 4, 0  # in the vocabulary of benchmarks/speed/input.py

Example = dict[str, Any]


def iterate_examples(examples: Sequence[Example], rng: np.random.Generator) -> Iterator[Example]:
    """Yield examples in random order, without end."""
    while True:
        for i in rng.permutation(len(examples)).tolist():
            yield examples[i]


def frame_rows(case: Mapping[str, Any], tokens: np.ndarray) -> tuple[list[list[int]], list[int]]:
    """Return rows of one length with [CLS] and [SEP], and their mask of special tokens."""
    rows = tokens[: 16_000 * (case["length"] - 2)].reshape(-1, case["length"] - 2).tolist()
    return [[CLS, *row, SEP] for row in rows], [1, *[0] * (case["length"] - 2), 1]


def make_masked_lm(
    case: Mapping[str, Any], tokens: np.ndarray, folder: pathlib.Path
) -> tuple[Iterator[Example], Callable]:
    """Return (endless examples, collator) of run_mlm.py: its columns and a fast tokenizer."""
    rows, special = frame_rows(case, tokens)
    columns = {
        "token_type_ids": [0] * case["length"],
        "attention_mask": [1] * case["length"],
        "special_tokens_mask": special,
    }
    # Not every version of transformers declares it.
    tokenizer_class: Any = getattr(transformers, "BertTokenizerFast")  # noqa: B009
    tokenizer = tokenizer_class(vocab=case["vocabulary"])
    if (len(tokenizer), tokenizer.pad_token_id, tokenizer.mask_token_id) != (
        case["size"],
        PAD,
        MASK,
    ):
        raise RuntimeError(
            f"{case['vocabulary']} is not the vocabulary of the store: "
            f"it has {len(tokenizer)} tokens, the store's has {case['size']}"
        )
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    return iterate_examples(
        [{"input_ids": row} | columns for row in rows], np.random.default_rng(0)
    ), collator


def make_ready_masked_lm(
    case: Mapping[str, Any], tokens: np.ndarray, folder: pathlib.Path
) -> tuple[Iterator[Example], Callable]:
    """Return (endless examples, collator) with a stand-in for the tokenizer that stacks rows."""
    rows, special = frame_rows(case, tokens)
    return iterate_examples(
        [{"input_ids": row, "special_tokens_mask": special} for row in rows],
        np.random.default_rng(0),
    ), make_ready_collator(case)


def make_ready_collator(case: Mapping[str, Any]) -> Callable:
    """Return the collator with the stand-in for the tokenizer."""
    tokenizer: Any = ReadyIdsTokenizer(mask=MASK, pad=PAD, size=case["size"])
    return transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)


def make_span_corruption(
    case: Mapping[str, Any], tokens: np.ndarray, folder: pathlib.Path
) -> tuple[Iterator[Example], Callable]:
    """Return (endless examples, collator) of span corruption, on texts of one raw length."""
    rows = tokens[: 4_000 * case["raw"]].reshape(-1, case["raw"]).tolist()
    rng = np.random.default_rng(0)
    collator = SpanCollator(case["noise"], case["spans"], case["size"], eos=1, pad=PAD, rng=rng)
    return iterate_examples([{"input_ids": row} for row in rows], rng), collator


def make_sentence_pairs(
    case: Mapping[str, Any], tokens: np.ndarray, folder: pathlib.Path
) -> tuple[Iterator[Example], Callable]:
    """Return (endless examples, collator) of sentence pairs, drawn again at each visit."""
    sentences, documents = (
        np.fromfile(folder / f"{name}.bin", np.int64) for name in ("sentences", "documents")
    )
    edges = np.searchsorted(sentences, documents[: DOCUMENTS + 1])
    split = [
        [tokens[a:b].tolist() for a, b in zip(sentences[i:j], sentences[i + 1 : j + 1])]
        for i, j in itertools.pairwise(edges)
    ]
    return iterate_pair_examples(split, case["length"], random.Random(0)), make_ready_collator(case)


def iterate_pair_examples(
    documents: Sequence[Sequence[list[int]]], length: int, rng: random.Random
) -> Iterator[Example]:
    """Yield examples of sentence pairs without end, padded to `length`."""
    while True:
        for index in rng.sample(range(len(documents)), len(documents)):
            for first, second, is_random in iterate_sentence_pairs(
                documents, index, length - 3, rng
            ):
                padding = length - 3 - len(first) - len(second)
                yield {
                    "input_ids": [CLS, *first, SEP, *second, SEP, *[PAD] * padding],
                    "token_type_ids": [0] * (len(first) + 2)
                    + [1] * (len(second) + 1)
                    + [0] * padding,
                    "attention_mask": [1] * (length - padding) + [0] * padding,
                    "special_tokens_mask": [
                        1,
                        *[0] * len(first),
                        1,
                        *[0] * len(second),
                        1,
                        *[1] * padding,
                    ],
                    "next_sentence_label": int(is_random),
                }


MAKERS = {
    "masked_lm": make_masked_lm,
    "masked_lm, ready ids": make_ready_masked_lm,
    "span_corruption": make_span_corruption,
    "sentence_pair": make_sentence_pairs,
}


def serve_requests() -> dict[str, Any]:
    """Return the first answer and the step function, which collates batches for some seconds."""
    cases, makers = json.loads(sys.argv[1]), {}
    for name, case in cases.items():
        store = pathlib.Path(case["store"])
        folder = store / json.loads((store / "manifest.json").read_text())["generation"] / "train"
        makers[name] = MAKERS[name](case, np.fromfile(folder / "tokens.bin", np.uint16), folder)

    def read_batches(name: str, seconds: float) -> dict[str, float]:
        (examples, collate), rows, count = makers[name], cases[name]["rows"], 0
        cpu_start, start = time.process_time(), time.perf_counter()
        while time.perf_counter() - start < seconds:
            batch = collate([next(examples) for _ in range(rows)])
            count += rows * cases[name]["length"]
        assert tuple(batch["input_ids"].shape) == (rows, cases[name]["length"])
        return {
            "wall": count / (time.perf_counter() - start),
            "cpu": count / (time.process_time() - cpu_start),
        }

    return {
        "ready": {
            "versions": [f"transformers {transformers.__version__}", f"PyTorch {torch.__version__}"]
        },
        "step": read_batches,
    }


if __name__ == "__main__":
    answer_messages(serve_requests)
