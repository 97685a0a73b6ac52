"""Divides a rectangle into areas proportional to given values, as square as possible. Pure.

Source: Bruls, Huizing, van Wijk: Squarified Treemaps (2000), https://vanwijk.win.tue.nl/stm.pdf
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle: its upper left corner, width and height."""

    x: float
    y: float
    width: float
    height: float


def divide(values: Sequence[float], box: Box) -> list[Box]:
    """One rectangle for each value; together they fill the box. `values`: positive, largest first."""
    total = sum(values)
    if not values or total <= 0 or box.width <= 0 or box.height <= 0:
        return [Box(box.x, box.y, 0.0, 0.0) for _ in values]
    scale = box.width * box.height / total
    areas = [value * scale for value in values]
    placed: list[Box] = []
    left = box
    start = 0
    while start < len(areas):
        side = min(left.width, left.height)
        end = start + 1
        while end < len(areas) and _worst(areas[start : end + 1], side) <= _worst(areas[start:end], side):
            end += 1
        row, left = _row(areas[start:end], left, is_last=end == len(areas))
        placed += row
        start = end
    return placed


def _worst(areas: Sequence[float], side: float) -> float:
    """The worst aspect ratio in a row of rectangles along a side."""
    total = sum(areas)
    if total <= 0 or side <= 0 or min(areas) <= 0:
        return float("inf")
    return max(side**2 * max(areas) / total**2, total**2 / (side**2 * min(areas)))


def _row(areas: Sequence[float], box: Box, *, is_last: bool) -> tuple[list[Box], Box]:
    """A row of rectangles along the shorter side, and the rest of the box."""
    total = sum(areas)
    along_height = box.width >= box.height
    side = box.height if along_height else box.width
    other = box.width if along_height else box.height
    depth = other if is_last else min(other, total / side if side > 0 else 0.0)
    placed = []
    at = 0.0
    for area in areas:
        length = side * area / total if total > 0 else 0.0
        if along_height:
            placed.append(Box(box.x, box.y + at, depth, length))
        else:
            placed.append(Box(box.x + at, box.y, length, depth))
        at += length
    if along_height:
        return placed, Box(box.x + depth, box.y, box.width - depth, box.height)
    return placed, Box(box.x, box.y + depth, box.width, box.height - depth)
