"""A runner of Apache Beam by its name, with its options: what can be wrong with them is told before anything runs."""

# apache-beam is optional.
# pyright: reportMissingImports=false

import builtins
import contextlib
import dataclasses
import difflib
import io
import pathlib
import re

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.direct.direct_runner import SwitchingDirectRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner, create_runner

from data.corpus.paths import is_remote
from data.corpus.sources import Piece

APART = (
    "Test",
    "Interactive",
    "Switching",
    "BundleBased",
)  # Beam's own tests and notebooks, and parts of DirectRunner
RAISED = re.compile(r"^(?:\w+\.)*(\w+): (.*) \[while running ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Runner:
    """A runner of Beam, by its name or the full name of its class; called, it makes a data.prepare.beam_pool.Fleet of its workers.

    options: of its pipelines, KEY=VALUE or KEY, as Beam names them.
    scratch: a folder, or a bucket's, that its workers and this machine reach; None: the workers are on this machine.
    """

    name: str
    options: tuple[str, ...] = ()
    scratch: str | None = None

    def __call__(self, folder: pathlib.Path, console=None):
        from data.prepare.beam_pool import Fleet  # imports TensorFlow

        return Fleet(self, folder, console)

    def check(self) -> None:
        """Raise ValueError for what Beam does not know, and where its workers could not read what is written here."""
        runner = self.make()
        self._check_options(runner)
        if self.scratch is None and type(runner).__name__ not in StandardOptions.LOCAL_RUNNERS:
            raise ValueError(
                f"--runner {self.name} works on other machines: --scratch names a folder that they and this one reach, "
                "such as gs://BUCKET/scratch"
            )

    def make(self) -> PipelineRunner:
        """A new runner. DirectRunner is the one in Python: Beam's own choice would first download another one and try that."""
        try:
            runner = create_runner(self.name)
        except ImportError as error:
            raise ValueError(f"--runner {self.name}: {error}") from error
        except (ValueError, AttributeError) as error:
            names = [
                name for name in StandardOptions.KNOWN_RUNNER_NAMES if not name.startswith(APART)
            ]
            close = difflib.get_close_matches(self.name, names, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ValueError(f"--runner {self.name}: {hint}Beam has {', '.join(names)}") from error
        return FnApiRunner() if isinstance(runner, SwitchingDirectRunner) else runner

    def pipeline_options(self) -> PipelineOptions:
        """New ones: a pipeline writes into its own."""
        return PipelineOptions([f"--{option.lstrip('-')}" for option in self.options])

    def check_reach(self, piece: Piece) -> None:
        """Raise ValueError for a piece of text that is on this machine while the workers are not."""
        if self.scratch is not None and is_remote(self.scratch) and not is_remote(piece.path):
            raise ValueError(
                f"{piece.path} is on this machine, where the workers of {self.name} cannot read it: "
                "copy it into the bucket (for tfds:NAME set TFDS_DATA_DIR to a folder there)"
            )

    def told(self, error: Exception) -> BaseException:
        """What went wrong: on a worker, the exception there, whose words Beam hands over at the end of a traceback."""
        text = f"{type(error).__name__}: {error}"
        for kind, words in RAISED.findall(text):
            raised = getattr(builtins, kind, None)
            if isinstance(raised, type) and issubclass(raised, (ValueError, OSError)):
                return raised(words)
            if words == KeyboardInterrupt.__name__:  # while a job was done in this process
                return KeyboardInterrupt()
        return (
            error
            if isinstance(error, (ValueError, OSError))
            else ChildProcessError(f"{self.name} failed: {text}")
        )

    def _check_options(self, runner: PipelineRunner) -> None:
        """Options that Beam does not know are an error, unless the runner's job server may have them."""
        known = PipelineOptions([]).get_all_options()
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                given = self.pipeline_options().get_all_options(retain_unknown_options=True)
            except SystemExit as error:  # argparse's
                raise ValueError(
                    f"--runner-option: {said.getvalue().strip().rpartition('error: ')[2]}"
                ) from error
        for key in given.keys() - known.keys():
            if not isinstance(runner, PortableRunner):
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ValueError(f"--runner-option {key}: not an option of Beam{hint}")
