"""The side of transformers in benchmarks/collate.py; runs in the peers' environment: collate_torch.py CASE."""

import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from benchmarks.harness import answer  # noqa: E402
from benchmarks.ready_ids import Ready  # noqa: E402


def serve():
    case = json.loads(sys.argv[1])
    length, rows = case["length"], case["rows"]
    collate = transformers.DataCollatorForLanguageModeling(Ready(mask=103, pad=0, size=30522), mlm_probability=0.15)
    rng = np.random.default_rng(0)
    special = [1, *[0] * (length - 2), 1]
    ids = rng.integers(1000, 30000, (64 * rows, length))
    examples = [{"input_ids": row.tolist(), "special_tokens_mask": special} for row in ids]
    chosen = iter(rng.permutation(len(examples)).tolist() * 10_000)

    def step(seconds):
        used, began, count = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            collate([examples[next(chosen)] for _ in range(rows)])
            count += 1
        return {"wall": count * rows * length / (time.perf_counter() - began), "cpu": count * rows * length / (time.process_time() - used)}

    return {"ready": {"versions": [f"transformers {transformers.__version__}", f"PyTorch {torch.__version__}"]}, "step": step}


if __name__ == "__main__":
    answer(serve)
