"""A worker that scores texts by minicons; see benchmarks/speed/scoring.py.

    python scoring_peer.py FOLDER WAY

FOLDER is what `export` wrote. A message has texts and the number of them in a batch; the answer has
the seconds, and the log probability of each text.
"""

# torch, transformers and minicons are of the peers' environment.
# pyright: reportMissingImports=false

import os
import sys
import time
from typing import Any

from minicons import scorer

from benchmarks.harness import answer_messages


def serve() -> dict[str, Any]:
    """Load the model; return what `answer_messages` needs."""
    import torch
    from transformers import PreTrainedTokenizerBase

    # minicons 0.3.39 calls the name that transformers 5 has no more; its repository calls this.
    tokenizer: Any = PreTrainedTokenizerBase
    tokenizer.batch_encode_plus = tokenizer.__call__
    folder, way = sys.argv[1:]
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if way == "likelihood":
        model: Any = scorer.IncrementalLMScorer(folder, "cpu")
        words: dict[str, Any] = {"bos_token": True}
    else:
        model = scorer.MaskedLMScorer(folder, "cpu")
        words = {"PLL_metric": "original" if way == "masked" else way}

    def score_texts(texts: list[str], batch: int) -> dict[str, Any]:
        start, sums = time.perf_counter(), []
        for first in range(0, len(texts), batch):
            sums += model.sequence_score(
                texts[first : first + batch], reduction=lambda log_p: log_p.sum().item(), **words
            )
        return {"seconds": time.perf_counter() - start, "log_probabilities": sums}

    return {"ready": True, "step": score_texts}


if __name__ == "__main__":
    answer_messages(serve)
