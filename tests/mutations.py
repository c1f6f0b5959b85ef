"""Break the program in ten places, one at a time, and report whether `launch.sh test` notices.

    python tests/mutations.py [NAME ...]

Each mutation replaces one piece of text in a copy of the working tree and runs the tests that guard
it there. The exit status is 1 where a mutation survives, or where its text is no longer in the file
exactly once. Run it before and after a change that moves tests or makes them faster.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent


class Mutation(NamedTuple):
    """`old` in the file `path` becomes `new`; at least one test of `tests`, arguments of pytest,
    must fail.
    """

    path: str
    old: str
    new: str
    tests: str


MUTATIONS = {
    "attention mask inverted": Mutation(
        "models/layers/ops.py", "where(mask, scores", "where(~mask, scores", "tests/models/layers/test_layers.py"
    ),
    "loss weight": Mutation(
        "pretrain/training/losses/replaced_token.py", '{"replaced_token": 50.0}', '{"replaced_token": 40.0}', "tests/pretrain/training/test_losses.py"
    ),
    "learning rate one step late": Mutation(
        "pretrain/training/schedules.py", "warmup = (n + 1)", "warmup = n", "tests/pretrain/training/test_optimizers.py"
    ),
    "checkpoint digest not compared": Mutation(
        "pretrain/workdir/checkpoint_record.py", "if leaf != recorded[path]:", "if False:", "tests/faults/test_damaged_checkpoint.py tests/pretrain/workdir/test_checkpoints.py"
    ),
    "weight decay of biases and norms": Mutation(
        "pretrain/training/optimizers/adamw.py", "mask=make_weight_decay_mask,", "mask=None,", "tests/pretrain/training/test_optimizers.py"
    ),
    "batch axes in the other order": Mutation(
        "pretrain/mesh/sharding.py", 'BATCH = P(("fsdp", "data"))', 'BATCH = P(("data", "fsdp"))',
        "tests/pretrain/mesh/test_sharding.py tests/pretrain/mesh/test_device_feed.py",
    ),
    "infinite loss taken for sound": Mutation(
        "pretrain/training/divergence.py", "is_finite = jnp.isfinite(loss) & jnp.isfinite(norm)", "is_finite = jnp.isfinite(norm)", "tests/pretrain/training/test_divergence.py"
    ),
    "kernels exported without their transpose": Mutation(
        "pretrain/families/rules.py", "ours=lambda a, shape: a.T.reshape(shape)", "ours=lambda a, shape: a.reshape(shape)", "tests/pretrain/convert/test_name_maps.py"
    ),
    "fewer masks than words drawn": Mutation("data/objectives/masking.py", "0.8,", "0.7,", "tests/data/objectives/test_masked_lm.py"),
    "sentinels begin with the second": Mutation(
        "data/objectives/span_corruption.py", "np.array(vocabulary.sentinels[: self.num_spans]", "np.array(vocabulary.sentinels[1 : self.num_spans + 1]", "tests/data/objectives/test_span_corruption.py"
    ),
}  # fmt: skip


def run_mutation(tree: pathlib.Path, mutation: Mutation) -> str:
    """Return "caught", or the problem: the mutation survives, or its text is not in the file
    exactly once.
    """
    path = tree / mutation.path
    text = path.read_text()
    if text.count(mutation.old) != 1:
        return (
            f"{mutation.path} has {mutation.old!r} {text.count(mutation.old)} times, expected once"
        )
    path.write_text(text.replace(mutation.old, mutation.new))
    try:
        pytest = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-m", "not more"]
        done = subprocess.run([*pytest, *mutation.tests.split()], cwd=tree, capture_output=True)
    finally:
        path.write_text(text)
    return "caught" if done.returncode == 1 else f"survived (pytest's status {done.returncode})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations to run; all by default")
    names = parser.parse_args().names or list(MUTATIONS)
    if unknown := sorted(set(names) - MUTATIONS.keys()):
        parser.error(f"no mutation {unknown[0]!r}; there are {', '.join(MUTATIONS)}")
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", ".cache")
        shutil.copytree(ROOT, tree, ignore=ignored)
        for name in names:
            verdict = run_mutation(tree, MUTATIONS[name])
            survived += verdict != "caught"
            print(f"{name}: {verdict}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
