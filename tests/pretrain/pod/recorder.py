"""Run a manifest's commands in bash, with programs that record their arguments and environment."""

import json
import os
import re
import subprocess
import sys

HOSTILE = "gs://bucket/a $(touch x) `id` $HOME $$ \"q\" 'q' #c: {x} ~ é"
TRAIN = ["train", "bert_large", "--workdir", "gs://bucket/bert", f"data.store={HOSTILE}"]
NOTE = "a\nb: $(NAME) é \x85\U0001f600"
# Writes its arguments and environment to the file RECORD, then exits with STATUS.
RECORDER = """#!{python}
import json, os, sys
with open(os.environ["RECORD"], "w") as file:
    json.dump([sys.argv[1:], dict(os.environ)], file)
sys.exit(int(os.environ.get("STATUS", "0")))
"""


def expand_references(text, env):
    """Return a text as Kubernetes passes it on: $(NAME) of `env` is replaced, $$ is one $."""
    return re.sub(
        r"\$(\$|\((\w+)\))", lambda one: "$" if one[1] == "$" else env.get(one[2], one[0]), text
    )


def write_recorders(folder):
    """Write recorders named cloze, srun and scontrol to a folder."""
    folder.mkdir()
    for name in ("cloze", "srun", "scontrol"):
        (folder / name).write_text(RECORDER.format(python=sys.executable))
        (folder / name).chmod(0o755)


def run_bash(script, folder, **env):
    """Run a script; return (its status, what the recorder saw)."""
    record = folder / "record"
    record.unlink(missing_ok=True)
    variables = os.environ | {"RECORD": str(record)} | env
    done = subprocess.run(["bash", "-c", script], env=variables, cwd=folder)
    assert not (folder / "x").exists()  # HOSTILE would have made it
    return done.returncode, json.loads(record.read_text()) if record.exists() else None
