"""prepare SOURCE... --output STORE: turn text into a token store."""

from __future__ import annotations

import argparse
import importlib.util
import logging
from typing import TYPE_CHECKING, Any

from pretrain.api.preparing import PrepareOptions, estimate, prepare
from pretrain.host.extras import how_to_install
from pretrain.settings.verb_options import add_options, read_options

if TYPE_CHECKING:
    from data.prepare.beam_runner import BeamRunner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare` to a parser."""
    add_options(parser, PrepareOptions)
    beam = parser.add_argument_group(
        "Apache Beam, for more than one machine", f"needs {how_to_install('beam')}"
    )
    beam.add_argument(
        "--runner",
        metavar="NAME",
        help="Apache Beam runner to use instead of local processes: DirectRunner (on this "
        "machine, for a trial), DataflowRunner, FlinkRunner, SparkRunner, ... or the full name of "
        "a class; the resulting store is the same",
    )
    beam.add_argument(
        "--runner-option",
        action="append",
        default=[],
        metavar="KEY[=VALUE]",
        help="option of the Beam pipeline, e.g. region=us-east5; repeatable",
    )
    beam.add_argument(
        "--scratch",
        metavar="FOLDER",
        help="folder that the workers and this machine can access, e.g. gs://BUCKET/scratch; "
        "temporary files in it are removed",
    )


def run(args: argparse.Namespace) -> int:
    """Write the store and print a summary, or an estimate for --dry-run; return 0."""
    from data.prepare.dry_run import format_estimate
    from data.prepare.summary import format_summary

    options: dict[str, Any] = {**vars(read_options(PrepareOptions, args))}
    options["beam_runner"] = _make_beam_runner(args)
    if options["dry_run"]:
        print("\n".join(format_estimate(estimate(**options))))
        return 0
    prepared = prepare(**options)
    print("\n".join(format_summary(prepared)))
    return 0


def _make_beam_runner(args: argparse.Namespace) -> BeamRunner | None:
    """Return the Beam runner that --runner names, or None for processes of this machine."""
    if args.runner is None:
        for name in ("runner_option", "scratch"):
            if getattr(args, name):
                raise ValueError(
                    f"--{name.replace('_', '-')} needs --runner, an Apache Beam runner"
                )
        return None
    if args.workers is not None:
        raise ValueError(
            "--workers sets the processes of this machine; with --runner use --runner-option"
        )
    if importlib.util.find_spec("apache_beam") is None:
        raise ValueError(f"--runner needs Apache Beam: {how_to_install('beam')}")
    # Failures are reported at the end; for remote jobs Beam also logs their progress.
    logging.basicConfig(format="%(message)s", level=logging.CRITICAL)
    logging.getLogger("apache_beam.runners").setLevel(
        logging.INFO if args.scratch else logging.CRITICAL
    )
    from data.prepare.beam_runner import BeamRunner

    runner = BeamRunner(args.runner, tuple(args.runner_option), args.scratch)
    runner.check_runner()
    return runner
