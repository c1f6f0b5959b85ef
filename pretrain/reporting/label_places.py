"""Places for the labels of points in a picture, such that no two labels overlap."""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

POINT_RADIUS = 4.0  # pixels around a point that stay free of labels
STEPS = (
    6.0,
    14.0,
    26.0,
    42.0,
    62.0,
    86.0,
    114.0,
    146.0,
    182.0,
    222.0,
    266.0,
    314.0,
)  # pixels from a point to its label
NUM_DIRECTIONS = 16
LINE_LENGTH = 12.0  # pixels: a label farther from its point gets a line to it


class Box(NamedTuple):
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """Return whether two rectangles share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def contains(self, other: Box) -> bool:
        """Return whether the rectangle contains another one."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.bottom <= other.bottom
            and other.top <= self.top
        )


def place_boxes(
    points_N2: np.ndarray, sizes_N2: np.ndarray, frame: Box
) -> list[tuple[Box, float] | None]:
    """Return the place of each label and its distance from its point, or None without room.

    Labels are placed in order, each at the nearest place where it covers no point and no label.

    Args:
      sizes_N2: width and height of each label, in pixels.
      frame: where labels may be.
    """
    taken = [
        Box(x - POINT_RADIUS, y - POINT_RADIUS, x + POINT_RADIUS, y + POINT_RADIUS)
        for x, y in points_N2.tolist()
    ]
    places = []
    for point, size in zip(points_N2.tolist(), sizes_N2.tolist()):
        place = next(
            (
                (box, step)
                for box, step in _propose_boxes(point, size)
                if frame.contains(box) and not any(map(box.overlaps, taken))
            ),
            None,
        )
        places.append(place)
        if place:
            taken.append(place[0])
    return places


def _propose_boxes(point: Sequence[float], size: Sequence[float]) -> Iterator[tuple[Box, float]]:
    """Yield (box, distance) of the places around a point, the nearest first."""
    (x, y), (width, height) = point, size
    for step in STEPS:
        for n in range(NUM_DIRECTIONS):
            # To the upper right first, where labels usually stand.
            angle = math.pi / 4 + 2 * math.pi * n / NUM_DIRECTIONS
            across, up = math.cos(angle), math.sin(angle)
            left = x + step * across + (across - 1) / 2 * width
            bottom = y + step * up + (up - 1) / 2 * height
            yield Box(left, bottom, left + width, bottom + height), step


def draw_labels(axes: Any, points_N2: np.ndarray, labels: Sequence[str], **style: Any) -> list[str]:
    """Draw a label at each point so that no two overlap; return those that found room.

    The layout of the figure has to be final.
    """
    from matplotlib.lines import Line2D

    # In fractions of the axes: the limits of the data stay as they are.
    style |= {"transform": axes.transAxes, "va": "bottom", "ha": "left", "parse_math": False}
    texts = [axes.text(0, 0, label, **style) for label in labels]
    extents = [text.get_window_extent() for text in texts]
    sizes_N2 = np.array([(extent.width, extent.height) for extent in extents]).reshape(-1, 2)
    inside = axes.get_window_extent()
    frame = Box(inside.x0, inside.y0, inside.x1, inside.y1)
    pixels_N2 = axes.transData.transform(points_N2)
    places = place_boxes(pixels_N2, sizes_N2 + 2.0, frame)
    to_fractions = axes.transAxes.inverted().transform
    for text, place, (x, y) in zip(texts, places, pixels_N2.tolist()):
        if place is None:
            text.remove()
            continue
        box, distance = place
        text.set_position(to_fractions((box.left + 1, box.bottom + 1)))
        if distance > LINE_LENGTH:
            near = min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)
            line = to_fractions([(x, y), near])
            axes.add_artist(
                Line2D(*line.T, transform=axes.transAxes, color="0.6", linewidth=0.5, zorder=0.5)
            )
    return [label for label, place in zip(labels, places) if place]
