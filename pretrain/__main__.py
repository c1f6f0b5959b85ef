"""The command line, `python -m pretrain VERB ...`."""

import argparse
import glob
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence

from pretrain.distributed import process_identity, processes
from pretrain.distributed.watchdog import exit_soon
from pretrain.hiding import find_hiding_file
from pretrain.terminal import escape_output, print_error

# {verb: (module with `add_arguments(parser)` and `run(args) -> exit status`, help text)}. A module
# is imported when its verb is called, so that `--help` needs neither JAX nor TensorFlow.
VERBS = {
    "prepare": ("pretrain.cli.prepare", "tokenize text into a store"),
    "inspect": (
        "pretrain.cli.inspect",
        "show a batch as text, and check it against its specification",
    ),
    "describe": (
        "pretrain.cli.describe",
        "show a resolved configuration, its parameters, FLOPs and tokens, or all keys",
    ),
    "plan": (
        "pretrain.cli.plan",
        "compile for a TPU slice without having it: memory and bounds on speed",
    ),
    "train": ("pretrain.cli.train", "start or continue training in a workdir"),
    "evaluate": ("pretrain.cli.evaluate", "evaluate a checkpoint on the whole held-out part"),
    "average": (
        "pretrain.cli.average",
        "average the last checkpoints of a run into a new workdir",
    ),
    "predict": (
        "pretrain.cli.predict",
        "fill masks, generate text or predict labels with a checkpoint",
    ),
    "features": (
        "pretrain.cli.features",
        "write the hidden states of any layers for a file of texts",
    ),
    "attention": (
        "pretrain.cli.attention",
        "draw the attention weights of every layer and head for a text",
    ),
    "senses": (
        "pretrain.cli.senses",
        "draw one word of many sentences by PCA and t-SNE of its states",
    ),
    "finetune": (
        "pretrain.cli.finetune",
        "fine-tune a pretrained model on GLUE or your own data",
    ),
    "glue": (
        "pretrain.cli.glue",
        "make the GLUE table of fine-tuned runs, and the files of a submission",
    ),
    "distil": (
        "pretrain.cli.distil",
        "start a run that distils a trained model into a smaller one",
    ),
    "export": ("pretrain.cli.export", "write a checkpoint as a Hugging Face folder"),
    "import": ("pretrain.cli.import_", "start a workdir from a Hugging Face folder"),
    "report": ("pretrain.cli.report", "draw the curves of a run"),
    "pod": (
        "pretrain.cli.pod",
        "create a TPU pod, run on all its workers, and restart it when it is lost",
    ),
    "local": (
        "pretrain.cli.local",
        "run another verb in N processes on this machine, as on a pod's hosts",
    ),
    "doctor": ("pretrain.cli.doctor", "show versions, devices and missing libraries"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status.

    Args:
      argv: the arguments, by default those of the process, which then exits.

    Returns:
      0 done, 1 failed or diverged, 2 bad input, 3 replicas disagree, 75 hung (the process exits by
      itself), 128 + n ended by signal n.
    """
    status, streams = 1, escape_output()
    process_identity.end_with_parent()
    try:
        status = run_verb(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    finally:
        if argv is None:  # the process has nothing else to do
            processes.shutdown_cluster()
            exit_soon(status)
        else:  # a traceback of the process comes after this, and is escaped, too
            sys.stdout, sys.stderr = streams
    return status


def run_verb(argv: Sequence[str]) -> int:
    """Run one verb, or print the list of verbs, and return the exit status."""
    usage = "python -m pretrain VERB ..."
    if not argv or argv[0] in ("-h", "--help"):
        lines = [f"  {verb:<10}{text}" for verb, (_, text) in VERBS.items()]
        print(f"usage: {usage}\n\nPretrain language models in JAX.\n\n" + "\n".join(lines))
        print("\n`python -m pretrain VERB --help` lists the arguments of a verb.")
        return 0 if argv else 2
    verb, *rest = argv
    if verb not in VERBS:
        import difflib

        close = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        print_error(f"no verb {verb!r}: {hint}There are {', '.join(VERBS)}")
        return 2
    if line := find_hiding_file():
        print_error(line)
        return 2
    # TensorFlow only reads data: silence its messages at import. Variables that are set stay.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("NO_GCE_CHECK", "true")
    if (
        importlib.util.find_spec("libtpu")
        and not glob.glob("/dev/accel*")
        and not glob.glob("/dev/vfio/[0-9]*")
    ):
        # libtpu is installed for `plan` without a TPU. Without these variables JAX's search for one
        # prints many lines.
        os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
        os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    module = importlib.import_module(VERBS[verb][0])
    parser = argparse.ArgumentParser(
        prog=f"python -m pretrain {verb}", description=VERBS[verb][1], allow_abbrev=False
    )
    module.add_arguments(parser)
    # After `local N` all arguments belong to another verb. Elsewhere path=value may follow options.
    parse = parser.parse_args if verb == "local" else parser.parse_intermixed_args
    args = parse(rest)
    try:
        return module.run(args) or 0
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        if os.environ.get("CLOZE_TRACEBACK"):
            raise
        print_error(error)
        return processes.exit_process(2)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return processes.exit_process(130)
    except Exception:
        if processes.get_client():
            traceback.print_exc()
            processes.exit_process(1)
        raise


if __name__ == "__main__":
    sys.exit(main())
