"""A runner of Apache Beam and its options, which are checked before anything runs."""

# apache-beam is optional.
# pyright: reportMissingImports=false

import builtins
import contextlib
import dataclasses
import difflib
import io
import pathlib
import re
from typing import TYPE_CHECKING

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.direct.direct_runner import SwitchingDirectRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner, create_runner

from data.corpus.paths import is_remote
from data.corpus.sources import InputChunk

if TYPE_CHECKING:
    from rich.console import Console

    from data.prepare.beam_pool import BeamPool

# Prefixes of runners for Beam's tests and notebooks, and of components of DirectRunner.
HIDDEN_RUNNERS = ("Test", "Interactive", "Switching", "BundleBased")
WORKER_ERROR = re.compile(r"^(?:\w+\.)*(\w+): (.*) \[while running ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class BeamRunner:
    """A runner of Beam; a call returns a pool of its workers (data/prepare/beam_pool.py).

    Attributes:
      name: name of the runner, or the full name of its class.
      options: pipeline options of Beam, KEY=VALUE or KEY.
      scratch: a folder or URL that the workers and this machine can access; None: the workers are
        on this machine.
    """

    name: str
    options: tuple[str, ...] = ()
    scratch: str | None = None

    def __call__(self, folder: pathlib.Path, console: "Console | None" = None) -> "BeamPool":
        from data.prepare.beam_pool import BeamPool  # imports TensorFlow

        return BeamPool(self, folder, console)

    def check_runner(self) -> None:
        """Raise ValueError for an unknown runner or option, or remote workers without --scratch."""
        runner = self.make_runner()
        self._check_options(runner)
        if self.scratch is None and type(runner).__name__ not in StandardOptions.LOCAL_RUNNERS:
            raise ValueError(
                f"--runner {self.name} works on other machines: --scratch names a folder that they "
                "and this machine can access, such as gs://BUCKET/scratch"
            )

    def make_runner(self) -> PipelineRunner:
        """Return a new runner.

        DirectRunner is the one in Python, since Beam's default for it would first download and try
        another one. Raises ValueError if Beam does not know the runner.
        """
        try:
            runner = create_runner(self.name)
        except ImportError as error:
            raise ValueError(f"--runner {self.name}: {error}") from error
        except (ValueError, AttributeError) as error:
            names = [
                name
                for name in StandardOptions.KNOWN_RUNNER_NAMES
                if not name.startswith(HIDDEN_RUNNERS)
            ]
            close = difflib.get_close_matches(self.name, names, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ValueError(f"--runner {self.name}: {hint}Beam has {', '.join(names)}") from error
        return FnApiRunner() if isinstance(runner, SwitchingDirectRunner) else runner

    def make_pipeline_options(self) -> PipelineOptions:
        """Return new options, since a pipeline changes those that it gets."""
        return PipelineOptions([f"--{option.lstrip('-')}" for option in self.options])

    def check_reach(self, piece: InputChunk) -> None:
        """Raise ValueError for a local chunk if the workers are on other machines."""
        if self.scratch is not None and is_remote(self.scratch) and not is_remote(piece.path):
            raise ValueError(
                f"{piece.path} is on this machine, where the workers of {self.name} cannot read "
                "it: copy it into the bucket (for tfds:NAME set TFDS_DATA_DIR to a folder there)"
            )

    def unwrap_error(self, error: Exception) -> BaseException:
        """Return the original error of a pipeline's failure.

        Beam passes on the message of a worker's exception at the end of a traceback.
        """
        text = f"{type(error).__name__}: {error}"
        for kind, message in WORKER_ERROR.findall(text):
            error_class = getattr(builtins, kind, None)
            if isinstance(error_class, type) and issubclass(error_class, (ValueError, OSError)):
                return error_class(message)
            if message == KeyboardInterrupt.__name__:  # raised while a job ran in this process
                return KeyboardInterrupt()
        return (
            error
            if isinstance(error, (ValueError, OSError))
            else ChildProcessError(f"{self.name} failed: {text}")
        )

    def _check_options(self, runner: PipelineRunner) -> None:
        """Raise ValueError for an option that neither Beam nor the runner's job server may have."""
        known = PipelineOptions([]).get_all_options()
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            try:
                given = self.make_pipeline_options().get_all_options(retain_unknown_options=True)
            except SystemExit as error:  # raised by argparse
                message = stderr.getvalue().strip().rpartition("error: ")[2]
                raise ValueError(f"--runner-option: {message}") from error
        for key in given.keys() - known.keys():
            if not isinstance(runner, PortableRunner):
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ValueError(f"--runner-option {key}: not an option of Beam{hint}")
