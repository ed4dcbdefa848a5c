"""Plots of what theory says: bounds over a grid, and the floor over d."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from membench.analysis.figure_style import COLOURS, MARKERS, figure_at
from membench.errors import UsageError
from membench.interface.bound import Bound
from membench.theory.evaluate import BoundValue
from membench.theory.floor import FloorInterval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = {"guarantee": "-", "limit": "-.", "reference": ":", "reported": "--"}


def draw_bounds(
    points: Sequence[tuple[Mapping[str, Any], Sequence[BoundValue]]],
    known: Mapping[str, Bound],
    path: Path | None = None,
) -> Figure:
    """Every bound on the accuracy over the one option that varies: what is guaranteed, what is impossible."""
    x = _varying([point for point, _ in points])
    curves: dict[str, list[tuple[float, float]]] = {}
    for point, values in points:
        for value in values:
            if value.quantity == "accuracy" and value.status == "applies" and value.value is not None:
                curves.setdefault(value.name, []).append((point[x], value.value))
    with figure_at(path) as axes:
        for number, (name, curve) in enumerate(curves.items()):
            style = STYLES.get(known[name].claim, ":")
            turn = number // len(COLOURS)  # past the last colour, the same colours with other markers
            colour, marker = COLOURS[number % len(COLOURS)], MARKERS[(number + turn) % len(MARKERS)]
            text = f"{name} ({known[name].claim})"
            axes.plot(*zip(*curve, strict=True), style, label=text, color=colour, marker=marker, markersize=4)
        axes.set(xlabel=x, ylabel="accuracy", yscale="log")  # most guarantees lie far below 1
    figure: Figure = axes.figure
    return figure


def _varying(points: Sequence[Mapping[str, Any]]) -> str:
    names = [
        name for name, value in points[0].items()
        if isinstance(value, (int, float)) and len({point[name] for point in points}) == len(points)
    ]  # fmt: skip
    if not names:
        raise UsageError("a plot of bounds needs one option that varies, such as -M H=1:31")
    return names[0]


def draw_floor(found: Sequence[FloorInterval], title: str, path: Path | None = None) -> Figure:
    """The interval over d, on a logarithmic axis."""
    with figure_at(path) as axes:
        d = [one.d for one in found]
        axes.plot(d, [_visible(one.worst) for one in found], ":", color=COLOURS[1], label="worst descent")
        axes.plot(d, [_visible(one.upper) for one in found], "-o", color=COLOURS[0], label="best found", markersize=4)
        axes.plot(d, [_visible(one.lower) for one in found], "--", color=COLOURS[2], label="proven lower end")
        axes.set(xlabel="d", ylabel="KL in nats", yscale="log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title(title, fontsize=11, loc="left")
    figure: Figure = axes.figure
    return figure


def _visible(divergence: float) -> float:
    """Zero, and what rounding left of it, has no place on a logarithmic axis."""
    return divergence if divergence > 1e-9 else math.nan
