"""The peers' side of benchmarks/collate.py; runs in their environment: collate_torch.py CASES."""

import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import itertools

import numpy as np
import torch
import transformers

from benchmarks.collate_peers import SpanCollator, sentence_pairs
from benchmarks.harness import answer
from benchmarks.ready_ids import Ready

DOCUMENTS = 3000  # that sentence pairs are made of
CLS, SEP, MASK, PAD = 2, 3, 4, 0  # in the vocabulary of benchmarks/input.py


def endless(examples, rng):
    """Examples at random, without end."""
    while True:
        for i in rng.permutation(len(examples)).tolist():
            yield examples[i]


def framed(case, tokens):
    """Rows of one length, as lists."""
    rows = tokens[: 16_000 * (case["length"] - 2)].reshape(-1, case["length"] - 2).tolist()
    return [[CLS, *row, SEP] for row in rows], [1, *[0] * (case["length"] - 2), 1]


def masked(case, tokens, folder):
    """(examples without end, collator), as run_mlm.py has them: the columns that its `map` makes, and a fast tokenizer."""
    rows, special = framed(case, tokens)
    one = {
        "token_type_ids": [0] * case["length"],
        "attention_mask": [1] * case["length"],
        "special_tokens_mask": special,
    }
    tokenizer = transformers.BertTokenizerFast(vocab=case["vocabulary"])
    if (len(tokenizer), tokenizer.pad_token_id, tokenizer.mask_token_id) != (
        case["size"],
        PAD,
        MASK,
    ):
        raise RuntimeError(
            f"{case['vocabulary']}: not the vocabulary of the store: {len(tokenizer)} words, of {case['size']}"
        )
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    return endless([{"input_ids": row} | one for row in rows], np.random.default_rng(0)), collator


def ready(case, tokens, folder):
    """The same for ids that lie ready, which a stand-in for a tokenizer stacks."""
    rows, special = framed(case, tokens)
    return endless(
        [{"input_ids": row, "special_tokens_mask": special} for row in rows],
        np.random.default_rng(0),
    ), stacker(case)


def stacker(case):
    return transformers.DataCollatorForLanguageModeling(
        Ready(mask=MASK, pad=PAD, size=case["size"]), mlm_probability=0.15
    )


def spans(case, tokens, folder):
    """The same for texts of one length that span corruption makes rows of `length` of."""
    rows = tokens[: 4_000 * case["raw"]].reshape(-1, case["raw"]).tolist()
    rng = np.random.default_rng(0)
    collator = SpanCollator(case["noise"], case["spans"], case["size"], eos=1, pad=PAD, rng=rng)
    return endless([{"input_ids": row} for row in rows], rng), collator


def pairs(case, tokens, folder):
    """The same for pairs, which are made anew whenever a document comes up."""
    sentences, documents = (
        np.fromfile(folder / f"{name}.bin", np.int64) for name in ("sentences", "documents")
    )
    edges = np.searchsorted(sentences, documents[: DOCUMENTS + 1])
    split = [
        [tokens[a:b].tolist() for a, b in zip(sentences[i:j], sentences[i + 1 : j + 1])]
        for i, j in itertools.pairwise(edges)
    ]
    return examples_of_pairs(split, case["length"], random.Random(0)), stacker(case)


def examples_of_pairs(documents, length, rng):
    while True:
        for index in rng.sample(range(len(documents)), len(documents)):
            for first, second, elsewhere in sentence_pairs(documents, index, length - 3, rng):
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
                    "next_sentence_label": int(elsewhere),
                }


MAKERS = {
    "masked_lm": masked,
    "masked_lm, ready ids": ready,
    "span_corruption": spans,
    "sentence_pair": pairs,
}


def serve():
    cases, made = json.loads(sys.argv[1]), {}
    for name, case in cases.items():
        store = pathlib.Path(case["store"])
        folder = store / json.loads((store / "manifest.json").read_text())["generation"] / "train"
        made[name] = MAKERS[name](case, np.fromfile(folder / "tokens.bin", np.uint16), folder)

    def step(name, seconds):
        (examples, collate), rows, count = made[name], cases[name]["rows"], 0
        used, began = time.process_time(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            batch = collate([next(examples) for _ in range(rows)])
            count += rows * cases[name]["length"]
        assert tuple(batch["input_ids"].shape) == (rows, cases[name]["length"])
        return {
            "wall": count / (time.perf_counter() - began),
            "cpu": count / (time.process_time() - used),
        }

    return {
        "ready": {
            "versions": [f"transformers {transformers.__version__}", f"PyTorch {torch.__version__}"]
        },
        "step": step,
    }


if __name__ == "__main__":
    answer(serve)
