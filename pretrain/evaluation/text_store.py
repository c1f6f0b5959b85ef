"""A plain text as a temporary token store, so that a run can be scored on all of it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Iterator

from data.corpus.paths import as_path
from data.mixed import split_objective
from data.saved_encoding import load_encoding
from data.store.reader import read_manifest
from data.vocabulary.base import Vocabulary
from data.vocabulary.field_tokens import find_fields
from pretrain.config import Run
from pretrain.host.terminal import print_notice
from pretrain.settings.overrides import ConfigError
from pretrain.workdir.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class TextRequest:
    """A text to score, and how it is read: the options of `prepare` with these names.

    Attributes:
      path: a file, a folder or a "pattern" of files.
      document: what is a document; None: what the objective of the run reads.
      field: name of the field of JSON records with the text, or the names of several.
      file_format: format of all files, whatever their names.
    """

    path: str
    document: str | None = None
    field: str | None = None
    file_format: str | None = None


def choose_documents(run: Run, given: str | None = None) -> str:
    """Return what a document of a text is: `given`, or what the objective of a run reads."""
    objectives = split_objective(run.data.objective).values()
    kinds = {objective.text_documents for objective in objectives}
    if "" in kinds:
        raise ConfigError(
            f"--text: {run.data.objective.name} does not learn from plain text: use --labelled "
            "FILE for labelled examples, or --store STORE"
        )
    return given or max(kinds)  # the parts of a mixture read "file"


@contextlib.contextmanager
def open_text_store(workdir: Workdir, text: TextRequest) -> Iterator[str]:
    """Yield the path of a temporary store whose "train" split is a text, and remove it at the end.

    The vocabulary comes from the workdir. No process is started, so a script needs no
    `if __name__ == "__main__":`. What `prepare` skips or repairs is reported.

    Raises:
      ConfigError: the run does not learn from plain text.
      ValueError: the text cannot be read, or is empty.
    """
    from data.prepare.build import prepare_store
    from data.prepare.local_pool import LocalPool
    from data.prepare.request import DEFAULT_FIELDS, PrepareRequest
    from data.prepare.summary import format_notes

    document = choose_documents(workdir.run, text.document)
    vocabulary = load_encoding(workdir)
    assert isinstance(vocabulary, Vocabulary)  # the objectives of images read no text
    fields = ",".join(find_fields(vocabulary)) if document == "fields" else ""
    request = PrepareRequest(
        sources=(text.path,),
        vocabulary=f"{workdir}/vocabulary",
        held_out=0.0,
        document=document,
        field=text.field or fields or DEFAULT_FIELDS.get(document, "text"),
        file_format=text.file_format,
    )
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_store(
            request, f"{folder}/store", beam_runner=functools.partial(LocalPool, 0)
        )
        for line in format_notes(prepared.store.manifest):
            print_notice(line)
        try:
            yield f"{folder}/store"
        except ValueError as error:  # name the text, not the folder, which will be gone
            name = f"the train split of {folder}/store"
            raise ValueError(str(error).replace(name, text.path)) from error


def count_tokens(store: str | os.PathLike[str], split: str) -> int:
    """Return the number of tokens of a split of a store."""
    return int(read_manifest(as_path(store))["splits"][split]["tokens"])
