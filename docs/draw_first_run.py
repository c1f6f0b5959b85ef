"""Draw the first run: a masked row, the loss, and a mask that is filled.

    ./launch.sh
    .venv/bin/python docs/draw_first_run.py runs/bert_tiny docs/figures/first_run.png

Needs matplotlib, which `./launch.sh` installs.
"""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot

SENTENCE = "Return the [MASK] of the string."
ROW = 13981  # its predictions have all three kinds: [MASK], another word, the word itself
SHOWN_ROWS = 12
MEAN_STEPS = 51
INK, BLUE, GREEN, ORANGE, GREY = "#1f2328", "#0969da", "#1a7f37", "#bc4c00", "#8c959f"
COLORS = {"as [MASK]": GREEN, "by another word": ORANGE, "as itself": BLUE}


def read_verb(*words: str) -> Any:
    """Return what a verb of `python -m pretrain` prints as JSON."""
    command = [sys.executable, "-m", "pretrain", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def draw_row(axes: Any, row: Mapping[str, Any]) -> None:
    """Draw the tokens of a row, and below each predicted one the token that is to be predicted."""
    masked = {item["position"]: item for item in row["masked"]}
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    renderer, x, y = axes.figure.canvas.get_renderer(), 0.0, 0.84
    for position, token in enumerate(row["tokens"]):
        item = masked.get(position)
        gap = 0.012 if token.startswith(" ") else -0.006
        text = axes.text(
            x + gap, y, token.strip(), fontsize=15, color=COLORS[item["how"]] if item else INK
        )
        text.set_fontweight("bold" if item else "normal")
        if item:
            text.set_bbox({"boxstyle": "round,pad=0.15", "fc": "white", "ec": COLORS[item["how"]]})
        box = axes.transData.inverted().transform(text.get_window_extent(renderer))
        width = box[1][0] - box[0][0]
        if x + gap + width > 1:
            x, y = 0.0, y - 0.3
            text.set_position((x, y))
            gap = 0.0
        if item:
            axes.text(
                x + gap, y - 0.095, f"→ {item['target']}", fontsize=12, color=COLORS[item["how"]]
            )
        x += gap + width + (0.014 if item else 0.004)


def draw_key(axes: Any) -> None:
    """Name the three ways in which a predicted token is shown."""
    words = {"as [MASK]": "80 % are hidden", "by another word": "10 % are replaced"}
    words["as itself"] = "10 % are left as they are"
    for number, (how, label) in enumerate(words.items()):
        axes.text(0.34 * number, -0.02, f"■ {label}", fontsize=11, color=COLORS[how])


def draw_loss(axes: Any, lines: Sequence[Mapping[str, Any]]) -> None:
    """Draw the training loss as points with a centred mean, and the held-out loss."""
    train = np.array([(line["step"], line["loss"]) for line in lines if "loss" in line])
    heldout = np.array(
        [(line["step"], line["heldout_loss"]) for line in lines if "heldout_loss" in line]
    )
    mean = np.convolve(train[:, 1], np.full(MEAN_STEPS, 1 / MEAN_STEPS), "valid")
    steps = train[MEAN_STEPS // 2 : -(MEAN_STEPS // 2), 0]
    axes.plot(*train.T, ".", markersize=1.5, color=GREY, alpha=0.35)
    axes.plot(steps, mean, color=BLUE, linewidth=2, label=f"training, mean of {MEAN_STEPS} steps")
    axes.plot(*heldout.T, "o-", color=ORANGE, label="held out")
    for step, loss in heldout:
        axes.annotate(f"{loss:.2f}", (step, loss), (0, 9), textcoords="offset points", ha="center")
    axes.set(xlabel="step", ylabel="loss (nats)")
    axes.legend(frameon=False)


def draw_words(axes: Any, answer: Mapping[str, Any]) -> None:
    """Draw the likeliest words of a mask as bars."""
    words = answer["masks"][0][::-1]
    percent = [100 * word["probability"] for word in words]
    bars = axes.barh([word["word"] for word in words], percent, color=GREEN, alpha=0.75)
    axes.bar_label(bars, fmt="%.1f %%", padding=4)
    axes.set(xlim=(0, 1.25 * max(percent)), ylim=(-0.6, len(words) + 0.4), xticks=[])
    axes.text(0, len(words) - 0.15, SENTENCE, fontsize=13)
    axes.tick_params(axis="y", length=0, labelsize=13)
    axes.spines[["top", "right", "bottom", "left"]].set_visible(False)


def main(workdir: str, output: str) -> None:
    """Draw the three panels into a PNG file."""
    report = read_verb(
        "inspect", f"{workdir}/config.json", "--batches", "1", "--rows", str(SHOWN_ROWS)
    )
    row = next((row for row in report["rows"] if row["row"] == ROW), report["rows"][0])
    answer = read_verb("predict", "--workdir", workdir, SENTENCE)
    metrics = pathlib.Path(workdir, "metrics.jsonl").read_text().splitlines()
    matplotlib.use("agg")
    pyplot.rcParams.update({"font.size": 12, "axes.titlesize": 14, "axes.titlelocation": "left"})
    pyplot.rcParams.update({"axes.titleweight": "bold", "axes.spines.top": False})
    pyplot.rcParams.update({"axes.spines.right": False})
    figure, panels = pyplot.subplots(
        1, 3, figsize=(15.5, 4.3), dpi=100, layout="constrained", width_ratios=[1.35, 1.15, 0.9]
    )
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.12)
    panels[0].set_title("inspect: what the model reads", pad=14)
    panels[1].set_title("train: what it learns", pad=14)
    panels[2].set_title("predict: what it fills in", pad=14)
    draw_loss(panels[1], [json.loads(line) for line in metrics])
    draw_words(panels[2], answer)
    figure.draw_without_rendering()
    draw_row(panels[0], row)
    draw_key(panels[0])
    figure.savefig(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
