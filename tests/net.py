"""Compare what two commits compute from the same Hugging Face folders, where their own names and
module paths differ.

    python tests/net.py OLD_COMMIT [--family NAME ...] [--tolerance 2e-6] [--hlo]

OLD_COMMIT is checked out into a temporary worktree; the other side is this working tree,
uncommitted changes included. In each tree, tests/net_driver.py imports given weights
(tests/given.py), prepares the same text, and makes three steps on one CPU device: float32, dropout
0, no clipping by the norm of all gradients. The first batch, the gradients of the first step, its
loss and the parameters after the third step are compared tensor by tensor under Hugging Face names,
and the masks of dropout for given keys. A name of --family is a case of the driver (CASES there);
all by default. The exit status is 1 where something differs by more than the tolerance.

What it proves. With --tolerance 0, the default: equal bits, as moving files and declaring things
once must leave them. With 2e-6: equal up to the order of float32 sums, as moved operations leave
them; a difference is relative to the tensor's largest value, or to a hundredth of the largest among
all gradients (or all parameters) where that is more, for a gradient that is 0 but for rounding has
no size. Batches and dropout masks must have equal bits in either case. With --hlo: the optimised
HLO of the whole train step, its clipping included, is the same but for metadata, so speed and
memory are the same too; a rename of parameters changes the order of the arguments, and so the text:
--hlo is for commits between which no parameter path is renamed (the last rename is 0.2.0's).

What it does not prove: anything about initial weights, dropout within a model, clipping or the
reported gradient norm, since these depend on our own names; about bfloat16, other devices, or
meshes; about the loop and its checkpoints, which the tests cover.

Both sides compile without LLVM's optimisations, which halves the time, and share a compilation
cache: equal programs compile once.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
WORDS = (
    "the a cloze is test in which words are left out of text reader gaps .".split()
)  # in all the golden vocabularies
# Files that an older commit lacks.
NEEDED = (
    "tests/net_driver.py",
    "tests/net_stores.py",
    "tests/given.py",
    "tests/goldens/given_models.json",
)
EXACT = ("batch/", "mask/")  # names of integers and masks, which must be exactly equal
FLOOR = (
    1e-2  # share of the largest value among tensors of one kind: the smallest scale of a difference
)
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


# ---- comparison --------------------------------------------------------------


class Comparison(NamedTuple):
    """How much one tensor differs. equal: bit by bit; difference: see `compare_tensors`; problem:
    why there is no number, or "".
    """

    name: str
    equal: bool
    difference: float
    problem: str = ""

    def is_within(self, tolerance: float) -> bool:
        """Return whether the tensor passes."""
        if self.problem or self.equal:
            return self.equal
        return tolerance > 0 and not self.name.startswith(EXACT) and self.difference <= tolerance


def compare_tensors(name: str, old: np.ndarray, new: np.ndarray, least: float = 0.0) -> Comparison:
    """Compare two tensors: the largest absolute difference, divided by the largest value of `old`,
    or by `least` where that is more.

    Another shape or type, or a value that is not finite, on either side, is a problem: NaN equals
    NaN bit by bit and proves nothing.
    """
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        return Comparison(
            name, False, np.inf, f"{old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}"
        )
    for side, tensor in (("old", old), ("new", new)):
        if not np.isfinite(tensor).all():
            return Comparison(
                name,
                False,
                np.inf,
                f"{(~np.isfinite(tensor)).sum()} values are not finite in the {side} tree",
            )
    if old.tobytes() == new.tobytes():
        return Comparison(name, True, 0.0)
    wide_old, wide_new = old.astype(np.float64), new.astype(np.float64)
    return Comparison(
        name,
        False,
        float(np.abs(wide_new - wide_old).max() / (max(least, np.abs(wide_old).max()) or 1.0)),
    )


def compare_arrays(old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> list[Comparison]:
    """Compare every tensor of either side; a tensor that one side lacks is a problem."""
    found, largest = [], {}
    for name, tensor in old.items():
        kind = name.partition("/")[0]
        largest[kind] = max(largest.get(kind, 0.0), float(np.abs(tensor).max(initial=0)))
    for name in sorted(old.keys() | new.keys()):
        if name in old and name in new:
            found.append(
                compare_tensors(name, old[name], new[name], FLOOR * largest[name.partition("/")[0]])
            )
        else:
            found.append(
                Comparison(
                    name, False, np.inf, f"missing in the {'new' if name in old else 'old'} tree"
                )
            )
    return found


def format_row(case: str, comparisons: list[Comparison], tolerance: float) -> str:
    """Format a row of the table: the case, its tensors, and the worst one."""
    failed = [each for each in comparisons if not each.is_within(tolerance)]
    worst = max(failed or comparisons, key=lambda each: (bool(each.problem), each.difference))
    equal = "yes" if all(each.equal for each in comparisons) else "no"
    where = worst.name if equal == "no" else ""
    outcome = f"{len(failed)} FAILED {worst.problem}" if failed else "ok"
    return f"{case:<20}{len(comparisons):>8}  {equal:<11}{worst.difference:>10.2g}  {where:<60} {outcome}"


# ---- two trees ---------------------------------------------------------------


def make_sentences(count: int = 120) -> list[str]:
    """Return sentences of 3 to 11 words, all different."""
    return [
        " ".join(WORDS[(i * i + 3 * i * j + j * j + j) % len(WORDS)] for j in range(3 + i % 9))
        for i in range(count)
    ]


def check_out(commit: str, tree: pathlib.Path) -> None:
    """Make a worktree of a commit, with the driver if the commit has none."""
    subprocess.run(
        ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True
    )
    for name in NEEDED:
        if not (tree / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)


def run_driver(tree: pathlib.Path, side: str, work: pathlib.Path, job: dict) -> pathlib.Path:
    """Run a tree's driver and return the folder of its output. Exits with its output if it fails."""
    output = work / side
    output.mkdir()
    path = work / f"{side}.json"
    path.write_text(json.dumps(job | {"output": str(output)}))
    environment = (
        os.environ
        | ENVIRONMENT
        | {"JAX_COMPILATION_CACHE_DIR": str(work / "cache"), "PYTHONPATH": str(tree)}
    )
    done = subprocess.run(
        [sys.executable, "tests/net_driver.py", str(path)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(
            f"{tree}: the driver of the {side} tree failed\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return output


def load_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file of the driver, or {} if it wrote none."""
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays}


def report_differences(old: pathlib.Path, new: pathlib.Path, tolerance: float, hlo: bool) -> bool:
    """Print the table of two output folders and return whether everything passes. A case of the new
    tree alone is named and passes.
    """
    print(f"{'case':<20}{'tensors':>8}  {'equal bits':<11}{'worst':>10}")
    passes = True
    for case in sorted(
        {path.stem for side in (old, new) for path in side.glob("*.npz")},
        key=lambda case: (case == "dropout", case),
    ):
        before, after = load_arrays(old / f"{case}.npz"), load_arrays(new / f"{case}.npz")
        if not before:
            print(f"{case:<20}  not in the old tree")
            continue
        comparisons = compare_arrays(before, after)
        print(format_row(case, comparisons, tolerance))
        passes &= all(each.is_within(tolerance) for each in comparisons)
        if hlo and case != "dropout":
            texts = [
                (side / f"{case}.hlo.txt").read_text()
                for side in (old, new)
                if (side / f"{case}.hlo.txt").exists()
            ]
            same = len(texts) == 2 and texts[0] == texts[1]
            print(f"{'':<20}{'HLO':>8}  {'yes' if same else 'no'}")
            passes &= same or tolerance > 0  # moved operations have another program
    return passes


def main() -> int:
    """Compare a commit with this tree."""
    parser = argparse.ArgumentParser(
        description="Compare what a commit and this tree compute from given weights."
    )
    parser.add_argument("commit", metavar="OLD_COMMIT")
    parser.add_argument(
        "--family",
        nargs="+",
        default=[],
        metavar="NAME",
        help="cases of tests/net_driver.py; all by default",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        choices=(0.0, 2e-6),
        help="0: equal bits; 2e-6: where operations move",
    )
    parser.add_argument(
        "--hlo", action="store_true", help="compare the optimised HLO of the train step too"
    )
    args = parser.parse_args()
    from tests import given

    with tempfile.TemporaryDirectory(prefix="net.") as folder:
        work = pathlib.Path(folder)
        folders = {
            model: str(given.write_folder(model, work / "models" / model)) for model in given.MODELS
        }
        job = {
            "cases": args.family,
            "folders": folders,
            "sentences": make_sentences(),
            "hlo": args.hlo,
        }
        try:
            check_out(args.commit, work / "tree")
            old = run_driver(work / "tree", "old", work, job)
        finally:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(work / "tree")],
                cwd=ROOT,
                capture_output=True,
            )
        passes = report_differences(
            old, run_driver(ROOT, "new", work, job), args.tolerance, args.hlo
        )
    print("the same" if passes else "NOT THE SAME")
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
