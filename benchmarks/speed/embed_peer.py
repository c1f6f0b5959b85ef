"""A worker that embeds texts by sentence-transformers; see benchmarks/speed/embed.py.

    python embed_peer.py FOLDER

FOLDER is an export. A message has texts and the number of them in a batch; the answer has the
seconds, and the vectors if they are asked for.
"""

# torch and sentence-transformers are of the peers' environment.
# pyright: reportMissingImports=false

import os
import sys
import time
from typing import Any

from benchmarks.harness import answer_messages


def serve() -> dict[str, Any]:
    """Load the model; return what `answer_messages` needs."""
    import sentence_transformers
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")

    def embed_texts(texts: list[str], batch: int, vectors: bool = False) -> dict[str, Any]:
        start = time.perf_counter()
        found = model.encode(texts, batch_size=batch, show_progress_bar=False)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "vectors": found.tolist() if vectors else None}

    versions = [
        f"sentence-transformers {sentence_transformers.__version__}",
        f"torch {torch.__version__}",
    ]
    return {"ready": versions, "step": embed_texts}


if __name__ == "__main__":
    answer_messages(serve)
