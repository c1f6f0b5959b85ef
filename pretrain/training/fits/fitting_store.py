"""A store that a trained model can be scored on."""

import sys
from typing import Any

from data.images.encoding import ImageEncoding
from data.saved_encoding import load_encoding
from data.source import describe_omissions
from data.store.kinds import open_source
from data.vocabulary.base import identify_encoding
from models.config.heads import HeadedConfig
from pretrain.settings.overrides import ConfigError
from pretrain.training.fits.model_fit import check_labels
from pretrain.workdir.workdir import Workdir


def open_fitting_store(store: str, workdir: Workdir) -> Any:
    """Open a store after checking its bytes, its vocabulary or classes, and its labels.

    Args:
      workdir: of a run, which has to have the same vocabulary or classes, and labels. A head on a
        model of characters may have another vocabulary, as it reads no ids.

    Raises:
      ConfigError: if one of them differs.
    """
    run = workdir.run
    opened = open_source(store).verify_or_salvage(run.data.on_corrupt)
    if (lost := describe_omissions(opened)) != describe_omissions(None):
        print(f"skipped damaged documents of {opened.path}: {lost}", file=sys.stderr)
    encoding = load_encoding(workdir)
    reads_any_words = isinstance(run.model, HeadedConfig) and run.model.characters
    is_same = identify_encoding(opened.encoding) == identify_encoding(encoding)
    if not is_same and not reads_any_words:
        if isinstance(encoding, ImageEncoding):
            classes = ", ".join(encoding.classes[:10])
            raise ConfigError(
                f"{opened.path} has other classes than {workdir}, whose first ones are {classes}; "
                f"prepare it with --classes {workdir}/images"
            )
        raise ConfigError(
            f"{opened.path} was prepared with a different vocabulary from {workdir}; "
            f"prepare it with --vocabulary {workdir}/vocabulary"
        )
    check_labels(run, opened)
    return opened
