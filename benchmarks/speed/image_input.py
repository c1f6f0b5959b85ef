"""Time the input of images in Cloze and in torchvision: images per second and per CPU second.

    python -m benchmarks.speed.image_input --torchvision FOLDER [--rounds 5] [--threads 2]

Both programs read the same JPEG files of 500 x 375 pixels, of smooth noise so that a file has about
as many bytes as one of ImageNet, and make batches of 64 training images of 224 x 224. Cloze reads a
store by `train`'s own pipeline with `--threads` threads. torchvision reads the folder by an
`ImageFolder` and a `DataLoader` with as many worker processes, and makes a normalised float32
tensor of an image; Cloze's pixels are uint8, and its model normalises them. Programs take turns,
each in its own process; CPU time is of all its threads and workers. A dated section is appended to
benchmarks/results/image_input.md. torchvision is no dependency: `pip install --no-deps --target
FOLDER torchvision==0.28.0 pillow` writes what the environment of the peers lacks.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import (
    ROOT,
    Worker,
    answer_messages,
    duration,
    format_command,
    format_spread,
    format_title,
    int_at_least,
    interleave_workers,
    report_errors,
)
from benchmarks.peer_environment import find_peers_python
from benchmarks.results_pages import add_result

READY_SECONDS, MAX_READY = 0.02, 100  # to read a batch that is ready; such batches at most
SIZE, ROWS = 224, 64  # pixels of a side, images of a batch
WIDTH, HEIGHT, QUALITY = 500, 375, 90  # of the files
# name: (settings of ImageClassification, what they are)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "crops": ({}, "a random crop of 8 % or more of the area, and a mirror image"),
    "DeiT": (
        {"num_ops": 2, "magnitude": 9.0, "erase_rate": 0.25},
        "the same, RandAugment with 2 operations of magnitude 9, and random erasing",
    ),
}


def write_images(folder: pathlib.Path, number: int) -> int:
    """Write JPEG files in two folders of classes and return their mean number of bytes."""
    from PIL import Image

    rng, total = np.random.default_rng(0), 0
    for i in range(number):
        coarse = rng.integers(0, 256, (HEIGHT // 5, WIDTH // 5, 3), np.uint8)
        smooth = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        grain = rng.integers(-12, 13, (HEIGHT, WIDTH, 3))
        pixels = (np.asarray(smooth) + grain).clip(0, 255).astype(np.uint8)
        path = folder / f"class{i % 2}" / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True, parents=True)
        Image.fromarray(pixels).save(path, quality=QUALITY)
        total += path.stat().st_size
    return total // number


def discard_ready(batches: Iterator[Any]) -> None:
    """Read the batches that are ready, up to the first that takes time to build."""
    for _ in range(MAX_READY):
        start = time.perf_counter()
        next(batches)
        if time.perf_counter() - start > READY_SECONDS:
            break


def measure_reading(
    batches: Iterator[Any], seconds: float, read_cpu: Callable[[], float]
) -> dict[str, float]:
    """Return the images per second and per CPU second of reading for some seconds.

    Batches that are ready at first were built in the other program's turn, and are not counted.

    Args:
      read_cpu: returns the CPU seconds of the program so far.
    """
    discard_ready(batches)
    cpu_start, start, count = read_cpu(), time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        next(batches)
        count += ROWS
    return {
        "wall": count / (time.perf_counter() - start),
        "cpu": count / (read_cpu() - cpu_start),
    }


def serve_requests() -> dict[str, Any]:
    """Return the first answer of Cloze and its step function.

    The step function reads batches of a case for some seconds and returns images per second and
    per CPU second.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from data.config import Data
    from data.images.image_store import ImageStore
    from data.objectives.image_classification import ImageClassification
    from data.pipeline import Stream
    from data.tensorflow_import import import_tensorflow
    from pretrain.__main__ import main as run_verb

    request, iterators = json.loads(sys.argv[2]), {}
    store = request["folder"] + "/store"
    if run_verb(["prepare-images", request["folder"] + "/images", "--output", store]):
        raise RuntimeError("prepare-images failed")
    for name, (settings, _) in CASES.items():
        data = Data(
            objective=ImageClassification(**settings),
            store=store,
            batch_size=ROWS,
            threads=request["threads"],
        )
        images: Any = ImageStore.open(store)
        iterators[name] = Stream(images, data, seed=1).iterate_batches(10**6)
        next(iterators[name])

    def read_batches(name: str, seconds: float) -> dict[str, float]:
        return measure_reading(iterators[name], seconds, time.process_time)

    return {
        "ready": {"versions": [f"TensorFlow {import_tensorflow('a benchmark').__version__}"]},
        "step": read_batches,
    }


def measure_cases(
    args: argparse.Namespace, folder: str
) -> tuple[list[str], dict[str, dict[str, np.ndarray]]]:
    """Run the cases.

    Returns:
      (versions, {case: {program: images per second and per CPU second [rounds, 2]}}).
    """
    request = json.dumps({"folder": folder, "threads": args.threads})
    peer_case = json.dumps({"folder": folder, "rows": ROWS, "size": SIZE, "workers": args.threads})
    program = ROOT / "benchmarks" / "speed" / "image_input_torch.py"
    peer_argv = [find_peers_python(), program, peer_case]
    ours = [sys.executable, "-m", "benchmarks.speed.image_input", "--serve", request]
    path = {"PYTHONPATH": str(args.torchvision)}
    with Worker(ours) as cloze, Worker(peer_argv, path) as peer:
        versions = cloze.read_answer()["versions"] + peer.read_answer()["versions"]
        workers, speeds = {"Cloze": cloze, "torchvision": peer}, {}
        for name in CASES:
            interleave_workers(workers, 1, name=name, seconds=1.0)
            replies = interleave_workers(workers, args.rounds, name=name, seconds=args.seconds)
            speeds[name] = {
                program: np.array([[turn["wall"], turn["cpu"]] for turn in turns])
                for program, turns in replies.items()
            }
    return versions, speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--torchvision", type=pathlib.Path, required=True, help="its folder")
    parser.add_argument("--seconds", type=duration, default=5.0)
    parser.add_argument("--rounds", type=int_at_least(1), default=5)
    parser.add_argument("--threads", type=int_at_least(1), default=2, help="of each program")
    parser.add_argument("--images", type=int_at_least(2 * ROWS), default=400, help="files")
    args = parser.parse_args()
    with report_errors(parser):
        find_peers_python()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        size = write_images(pathlib.Path(folder) / "images", args.images)
        versions, speeds = measure_cases(args, folder)
    head = ["training images", "Cloze, images/s", "a CPU second", "torchvision, images/s"]
    head += ["a CPU second", "ratio by the clock", "by CPU seconds"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, by_program in speeds.items():
        ratios = by_program["Cloze"] / by_program["torchvision"]
        cells = [format_spread(column) for speed in by_program.values() for column in speed.T]
        cells += [format_spread(column, ".2f") for column in ratios.T]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    note = (
        f"`{format_command()}`: {args.images} JPEG files of {WIDTH} x {HEIGHT} pixels, "
        f"{size / 1e3:.0f} kB each; medians of {args.rounds} rounds of {args.seconds:g} s and, in "
        f"brackets, the minimum and the maximum; ratios are computed in each round. Cloze with "
        f"{args.threads} threads, torchvision with {args.threads} worker processes:"
    )
    kinds = [f"- {name}: {text}." for name, (_, text) in CASES.items()]
    add_result("image_input", [format_title(load, *versions), "", note, "", *kinds, "", *lines])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        answer_messages(serve_requests)
    else:
        main()
