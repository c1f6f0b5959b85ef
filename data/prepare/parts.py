"""Publish the text that is encoded so far as stores of their own (`prepare --follow`).

STORE-part-1 has the documents of the first 16 jobs, which is 64 MiB of text, STORE-part-2 has those
of four times as many jobs, and so on. All of them take between a third and four thirds of the whole
store. A part is the beginning of the next one, and of STORE. Documents are held out by their text
alone, so what is held out of the whole was never trained on in a part. The boundaries depend on the
text and not on the time, so a part has the same bytes on every machine.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from data.prepare.job_report import JobReport
from data.prepare.request import PrepareRequest
from data.prepare.resume import PART, open_existing
from data.source import SPLITS
from data.store import generations
from data.store.writer import StoreWriter

FIRST_JOBS, GROWTH = 16, 4


@dataclasses.dataclass
class PartStores:
    """The parts of a store that is being prepared.

    Attributes:
      output: the folder of the whole store.
      origin: its request and inputs, as its manifest records them.
      overwrite: whether other stores in the folders of the parts are replaced.
      report_step: prints a line.
      number: of the next part.
      num_jobs: jobs whose documents the next part has.
    """

    output: pathlib.Path
    origin: dict[str, Any]
    overwrite: bool
    report_step: Callable[[str], None]
    number: int = 1
    num_jobs: int = FIRST_JOBS

    def __post_init__(self) -> None:
        self.open_next()

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the next part."""
        return self.output.with_name(f"{self.output.name}-part-{self.number}")

    def open_next(self) -> Any:
        """Return the next part if it is there already; None if it is not.

        Raises FileExistsError if its folder has anything else, unless that store is replaced.
        """
        return open_existing(self.folder, self.origin | {PART: self.number}, self.overwrite)

    def publish_if_due(
        self,
        num_jobs: int,
        writer: StoreWriter,
        report: JobReport,
        threshold: int,
        finish: Callable[..., None],
    ) -> None:
        """Publish the next part, if its jobs are done and no split would be empty in it.

        Args:
          num_jobs: number of the jobs that are done.
          writer: of the whole store, which has their documents.
          report: of the jobs that are done.
          threshold: hash below which documents are held out.
          finish: writes the manifest: (writer, report, threshold, entries=more of the manifest's).
        """
        train, heldout = (writer.totals[split]["documents"] for split in SPLITS)
        if num_jobs < self.num_jobs or not train or (threshold and not heldout):
            return
        if self.open_next() is None:
            with generations.replace_store(self.folder) as new, writer.copy_to(new) as part:
                finish(part, report, threshold, part=self.number)
        tokens = writer.totals["train"]["tokens"]
        self.report_step(
            f"{self.folder} is ready: {train:,} documents and {tokens:,} tokens to train on"
        )
        self.number += 1
        while self.num_jobs <= num_jobs:  # several, if documents to hold out came late
            self.num_jobs *= GROWTH

    def report_none(self) -> None:
        """Say so if the text was too short for a part."""
        if self.number == 1:
            self.report_step(
                f"--follow: no part was written, because the first one has {self.num_jobs} jobs "
                "(64 MiB of text)"
            )


def check_followed(request: PrepareRequest, on_beam: bool) -> None:
    """Raise ValueError for a request whose parts would not be like the whole store."""
    if len(request.list_sources()) > 1:
        kind = "--validation" if request.validation else f"{len(request.sources)} sources"
        raise ValueError(
            f"--follow with {kind}: sources are read one after the other, so a part would have the "
            "first one alone; prepare one source with --held-out, or leave --follow out"
        )
    if on_beam:
        raise ValueError(
            "--follow with --runner: Beam hands over its results at the end; leave --follow out, "
            "or prepare on this machine"
        )
