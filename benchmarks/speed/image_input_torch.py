"""The worker of benchmarks/speed/image_input.py for torchvision; it runs in the peers' environment.

image_input_torch.py CASE
"""

# torch and torchvision are optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import os
import pathlib
import sys
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import torch

# The registry's torchvision is built for CUDA: with a CPU build of torch its compiled operators
# are absent, and this module alone asks for them. Images in Pillow need none.
sys.modules["torchvision._meta_registrations"] = types.ModuleType("absent")
import torchvision  # noqa: E402
from torchvision import datasets, transforms  # noqa: E402

from benchmarks.harness import answer_messages  # noqa: E402
from benchmarks.speed.image_input import measure_reading  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_transform(size: int, is_deit: bool) -> Any:
    """Return the changes of a training image, which end in a normalised tensor."""
    bicubic = transforms.InterpolationMode.BICUBIC
    steps = [
        transforms.RandomResizedCrop(size, interpolation=bicubic),
        transforms.RandomHorizontalFlip(),
    ]
    if is_deit:
        steps.append(transforms.RandAugment(num_ops=2, magnitude=9))
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    if is_deit:
        steps.append(transforms.RandomErasing(p=0.25, value="random"))
    return transforms.Compose(steps)


def iterate_batches(case: dict[str, Any], is_deit: bool) -> Iterator[torch.Tensor]:
    """Yield batches without end, epoch after epoch."""
    images = datasets.ImageFolder(case["folder"] + "/images", make_transform(case["size"], is_deit))
    loader = torch.utils.data.DataLoader(
        images,
        batch_size=case["rows"],
        shuffle=True,
        drop_last=True,
        num_workers=case["workers"],
        persistent_workers=True,
    )
    while True:
        for pixels, _ in loader:
            yield pixels


def read_cpu_seconds(parent: int) -> float:
    """Return the CPU seconds of this process and of those that it has started (Linux)."""
    ticks = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(fields[1]) == parent or path.parent.name == str(parent):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def serve_requests() -> dict[str, Any]:
    """Return the first answer and the step function, as `image_input` has them."""
    case, iterators = json.loads(sys.argv[1]), {}
    torch.set_num_threads(1)

    def read_batches(name: str, seconds: float) -> dict[str, float]:
        if name not in iterators:
            iterators.clear()  # its workers end
            iterators[name] = iterate_batches(case, name == "DeiT")
            next(iterators[name])
        return measure_reading(iterators[name], seconds, partial(read_cpu_seconds, os.getpid()))

    versions = [f"PyTorch {torch.__version__}", f"torchvision {torchvision.__version__}"]
    return {"ready": {"versions": versions}, "step": read_batches}


if __name__ == "__main__":
    answer_messages(serve_requests)
    os._exit(0)  # the workers of the loader are its children
