"""Which documents of a store a run skips, because their bytes are damaged."""

import hashlib
from typing import Any

from data.store.writer import SPLITS


def describe_omissions(store: Any) -> str:
    """Return a description of a store's skipped documents, equal for equal documents.

    Args:
      store: a store, or another source, which has no skipped documents.
    """
    left_out = getattr(store, "skipped_documents", {})
    counts = [
        f"{len(documents):,} of {split}" for split, documents in left_out.items() if len(documents)
    ]
    if not counts:
        return "no documents"
    digest = hashlib.sha256(
        b"".join(left_out[split].tobytes() + b"|" for split in SPLITS)
    ).hexdigest()[:8]
    return f"{' and '.join(counts)} documents ({digest})"
