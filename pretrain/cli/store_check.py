"""Check a run against the store in its bucket, before a pod is paid for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from data.corpus.buckets import BucketError, MissingBucketError, check_bucket
from data.corpus.paths import is_remote
from data.images.captioned_vocabulary import CaptionedVocabulary
from data.mixed import split_objective
from data.store.kinds import open_without_documents
from data.vocabulary.load import Vocabulary
from pretrain.api.store_vocabulary import follow_store
from pretrain.config import Run
from pretrain.training.fits.model_fit import check_fit


def check_store(run: Run, config: str, overrides: Sequence[str], workdir: str) -> None:
    """Check that a run fits its store, as a worker does when it starts.

    A bucket that cannot be reached from this machine, and a folder that only the workers have, is
    one line on the standard error.

    Args:
      config: the name or path from which it was loaded.

    Raises:
      FileNotFoundError: there is no store.
      MissingBucketError: there is no bucket.
      ValueError: the store is broken or incomplete, or the run does not fit it.
    """
    try:
        check_bucket(workdir)
        check_bucket(run.data.store)
    except MissingBucketError:
        raise
    except BucketError as error:
        print_unchecked(str(error))
        return
    try:
        store = open_without_documents(run.data.store)
    except FileNotFoundError:
        if is_remote(run.data.store):
            raise
        print_unchecked(f"data.store={run.data.store} is not on this machine")
        return
    run = follow_store(run, config, overrides, workdir)
    encoding = store.encoding
    if isinstance(encoding, CaptionedVocabulary):
        return
    if isinstance(encoding, Vocabulary):
        for objective in split_objective(run.data.objective).values():
            objective.check_vocabulary(encoding)
    check_fit(run, store)


def print_unchecked(reason: str) -> None:
    """Print that a store is not checked, and why."""
    print(f"# not checked here: {reason}", file=sys.stderr)
