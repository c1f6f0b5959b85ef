"""A token store that a trained model can be scored on."""

import sys
from typing import Any

from data.examples.example_store import open_source
from data.store.salvage import describe_omissions
from data.vocabulary.load import load_vocabulary
from models.config.heads import HeadedConfig
from pretrain.config import Run
from pretrain.evaluation.label_checks import check_labels
from pretrain.overrides import ConfigError


def open_fitting_store(store: str, workdir: str, run: Run) -> Any:
    """Open a token store after checking its bytes, its vocabulary and its labels.

    Args:
      store: path of the store.
      workdir: workdir of the run.
      run: the run, which has to have the same vocabulary and labels. A head on a model of
        characters may have another vocabulary, as it reads no ids.

    Raises:
      ConfigError: if the vocabulary or the labels differ.
    """
    opened = open_source(store).verify_or_salvage(run.data.on_corrupt)
    if (lost := describe_omissions(opened)) != describe_omissions(None):
        print(f"skipped damaged documents of {opened.path}: {lost}", file=sys.stderr)
    vocabulary = load_vocabulary(f"{workdir}/vocabulary")
    reads_any_words = isinstance(run.model, HeadedConfig) and run.model.characters
    if opened.vocabulary.fingerprint != vocabulary.fingerprint and not reads_any_words:
        raise ConfigError(
            f"{opened.path} was prepared with a different vocabulary from {workdir}; "
            f"prepare it with --vocabulary {workdir}/vocabulary"
        )
    check_labels(run, opened)
    return opened
