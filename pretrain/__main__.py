"""The command line, `python -m pretrain VERB ...`."""

import os
import sys
import traceback
from collections.abc import Sequence

from pretrain.cli.verbs import (
    VERBS,
    WITHOUT_JAX,
    describe_unknown,
    explain_disk_error,
    format_help,
    import_verb,
    is_result_printed,
    parse_arguments,
)
from pretrain.host.hiding import find_hiding_file, find_missing_folder
from pretrain.host.library_messages import silence_libraries
from pretrain.host.lost_output import (
    discard_output,
    guard_output,
    has_failed,
    is_guarded,
    open_missing_streams,
)
from pretrain.host.terminal import escape_output, print_error
from pretrain.processes import process_identity, processes
from pretrain.processes.hang_notice import exit_after_error
from pretrain.processes.watchdog import exit_soon
from pretrain.training.memory.exhaustion import explain_exhausted_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status.

    Args:
      argv: the arguments, by default the process's own, which then exits.

    Returns:
      0 done, 1 failed or diverged, 2 bad input, 3 replicas disagree, 75 hung (the process exits by
      itself), 128 + n ended by signal n.
    """
    open_missing_streams()
    words = sys.argv[1:] if argv is None else argv
    status, streams = 1, guard_output(not is_result_printed(words), is_own=argv is None)
    escape_output()
    process_identity.end_with_parent()
    try:
        status = run_printing(words)
    finally:
        if argv is None:  # the process has nothing else to do
            processes.shutdown_cluster()
            exit_soon(status)
        else:  # a traceback of the process comes after this, and is escaped, too
            sys.stdout, sys.stderr = streams
    return status


def run_printing(argv: Sequence[str]) -> int:
    """Run one verb, flush its output, and return the exit status.

    Where the output is the result and cannot be written, the status is 141 if its reader has gone,
    such as `head`, and otherwise 2.
    """
    try:
        try:
            status = run_verb(argv)
        except SystemExit:  # of --help, or of wrong arguments
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return status
    except OSError as error:
        if not is_output_error(error):
            raise
        discard_output(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return 141
        print_error(f"the standard output cannot be written: {error}")
        return 2


def is_output_error(error: Exception) -> bool:
    """Return whether an error says that the standard output, a result, cannot be written."""
    if is_guarded(sys.stdout) or not isinstance(error, OSError) or error.filename is not None:
        return False
    return isinstance(error, BrokenPipeError) or has_failed(sys.stdout)


def run_verb(argv: Sequence[str]) -> int:
    """Run one verb, or print the list of verbs, and return the exit status."""
    if line := find_missing_folder() or find_hiding_file():
        print_error(line)
        return 2
    # It imports `data`, which a file of the caller may hide.
    from pretrain.settings.jax_settings import check_jax_settings, explain_jax_error

    if not argv or argv[0] in ("-h", "--help"):
        print(format_help())
        return 0 if argv else 2
    verb, *rest = argv
    if verb not in VERBS:
        print_error(describe_unknown(verb))
        return 2
    silence_libraries()
    os.environ.setdefault("NO_GCE_CHECK", "true")  # TensorFlow would look for Google's machines
    args = parse_arguments(verb, rest)
    try:
        if verb not in WITHOUT_JAX:
            check_jax_settings()
        return import_verb(verb).run(args) or 0
    except (ValueError, OSError) as error:
        if is_output_error(error):
            raise
        if os.environ.get("CLOZE_TRACEBACK"):
            raise
        print_error(explain_jax_error(error) or explain_disk_error(error, args) or error)
        return exit_after_error(2)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return processes.exit_process(130)
    except Exception as error:
        line = (
            explain_bucket_error(error)
            or explain_jax_error(error)
            or explain_exhausted_command(error, args)
        )
        if line and not os.environ.get("CLOZE_TRACEBACK"):
            print_error(line)
            return exit_after_error(2)
        if processes.get_client():
            traceback.print_exc()
            exit_after_error(1)
        raise


def explain_bucket_error(error: Exception) -> str:
    """Return a line for an error of TensorFlow's access to a bucket; "" for any other."""
    if "tensorflow" not in sys.modules:
        return ""
    from data.corpus.buckets import explain_error, is_bucket_error

    return explain_error(error) if is_bucket_error(error) else ""


if __name__ == "__main__":
    sys.exit(main())
