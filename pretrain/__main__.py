"""python -m pretrain VERB ...: everything that Cloze does, one verb each."""

import argparse
import glob
import importlib.util
import os
import sys
import traceback

from pretrain.distributed import process_identity, processes
from pretrain.distributed.watchdog import leave_soon

# verb -> (the module that has `add_arguments(parser)` and `run(args) -> exit status`, what it does). A verb's module is imported when
# the verb is chosen, so `--help` needs neither JAX nor TensorFlow.
VERBS = {
    "prepare": ("pretrain.cli.prepare", "turn text into a token store"),
    "inspect": ("pretrain.cli.inspect", "show one batch decoded, and check what it promises"),
    "describe": (
        "pretrain.cli.describe",
        "a configuration in full, its parameters, FLOPs and tokens; what each key means",
    ),
    "plan": (
        "pretrain.cli.plan",
        "compile for a TPU slice that is not here: what fits, what bounds it",
    ),
    "train": ("pretrain.cli.train", "train, or go on training, in a workdir"),
    "evaluate": ("pretrain.cli.evaluate", "score a checkpoint on the whole held-out part"),
    "average": (
        "pretrain.cli.average",
        "the mean of a run's last checkpoints, as a workdir of its own",
    ),
    "predict": ("pretrain.cli.predict", "fill masks, generate, or tell labels, with a checkpoint"),
    "features": ("pretrain.cli.features", "hidden states of any layers for a file of texts"),
    "attention": (
        "pretrain.cli.attention",
        "who reads whom in a text: every layer and head, as a page and pictures",
    ),
    "senses": (
        "pretrain.cli.senses",
        "one word in many sentences, as a picture by PCA and t-SNE",
    ),
    "finetune": (
        "pretrain.cli.finetune",
        "teach a pretrained encoder to tell labels: GLUE, or text of one's own",
    ),
    "glue": (
        "pretrain.cli.glue",
        "GLUE's table of fine-tuned runs, and the files of a submission",
    ),
    "distil": ("pretrain.cli.distil", "begin a run whose smaller model learns from a trained one"),
    "export": ("pretrain.cli.export", "write a checkpoint as a Hugging Face folder"),
    "import": ("pretrain.cli.import_", "start a workdir from a Hugging Face folder"),
    "report": ("pretrain.cli.report", "draw the curves of a run"),
    "pod": ("pretrain.cli.pod", "ask for a TPU pod, run on all its workers, and keep it running"),
    "local": ("pretrain.cli.local", "another verb in N processes here, as on a pod's hosts"),
    "doctor": ("pretrain.cli.doctor", "versions, devices and what is missing"),
}


def main(words=None):
    """Run one verb; returns its exit status.

    0 done, 1 failed or diverged, 2 bad input, 3 devices disagree, 75 hung (it leaves by itself), 128 + n ended by signal n.
    """
    status = 1
    process_identity.end_with_parent()
    try:
        status = run(sys.argv[1:] if words is None else words)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    finally:
        if words is None:  # the process is there for nothing else
            processes.part()
            leave_soon(status)
    return status


def run(words):
    """One verb, or the list of them."""
    usage = "python -m pretrain VERB ..."
    if not words or words[0] in ("-h", "--help"):
        lines = [f"  {verb:<10}{text}" for verb, (_, text) in VERBS.items()]
        print(f"usage: {usage}\n\nPretrain language models in JAX.\n\n" + "\n".join(lines))
        print("\n`python -m pretrain VERB --help` tells what a verb takes.")
        return 0 if words else 2
    verb, *rest = words
    if verb not in VERBS:
        import difflib

        close = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        print(f"error: no verb {verb!r}: {hint}There are {', '.join(VERBS)}", file=sys.stderr)
        return 2
    # TensorFlow only feeds; silence what its runtime says at import. What the user set stays.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("NO_GCE_CHECK", "true")
    if (
        importlib.util.find_spec("libtpu")
        and not glob.glob("/dev/accel*")
        and not glob.glob("/dev/vfio/[0-9]*")
    ):
        # The TPU's compiler is here for `plan`, and no TPU: without these, JAX's look for one fills the screen.
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
        print(f"error: {error}", file=sys.stderr)
        return processes.leave(2)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return processes.leave(130)
    except Exception:
        if processes.client():
            traceback.print_exc()
            processes.leave(1)
        raise


if __name__ == "__main__":
    sys.exit(main())
