"""Curves: y over x for each group of trials, with intervals over seeds, fitted laws, and a picture of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from membench.analysis.figure_style import COLOURS, MARKERS, figure_at
from membench.analysis.intervals import mean_interval
from membench.analysis.laws import Fit
from membench.errors import UsageError
from membench.measure.metrics import METRICS
from membench.measure.size import COUNTS
from membench.printing import cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CEILINGS = {name: metric.ceiling for name, metric in METRICS.items() if metric.ceiling is not None}
REFERENCES = (("zero_head", "last token only", "--"), ("chance", "chance", "-."))
LABELS = {
    **{name: metric.label for name, metric in METRICS.items()},
    **{count.field: count.words for count in COUNTS.values()},
    "proven_accuracy": "proven",
    "proven_associations": "proven",
}


@dataclass(frozen=True)
class Curve:
    """The trials of one group."""

    name: str
    x: str
    y: str
    trials: pd.DataFrame
    fits: Sequence[Fit] = ()

    @property
    def points(self) -> pd.DataFrame:
        """For each x: mean, interval, number of seeds, and the means of all other numeric columns."""
        rows = []
        for x, group in self.trials.groupby(self.x, sort=True):
            values = group[self.y].to_numpy(dtype=np.float64)
            low, high = mean_interval(values, CEILINGS.get(self.y))
            rows.append({self.x: x, "mean": values.mean(), "low": low, "high": high, "seeds": len(values)})
        return pd.DataFrame(rows)

    def mean_of(self, column: str) -> pd.Series[Any]:
        """The mean of another column at each x."""
        return self.trials.groupby(self.x, sort=True)[column].mean()


def curves(frame: pd.DataFrame, x: str, y: str, by: Sequence[str]) -> list[Curve]:
    """One curve for each group; trials without a finite x and y do not count."""
    frame = frame[np.isfinite(frame[x].astype(float)) & np.isfinite(frame[y].astype(float))]
    if frame.empty:
        raise UsageError(f"no record has both {x} and {y}")
    if not by:
        return [Curve("", x, y, frame)]
    groups = frame.groupby(list(by), sort=True, dropna=False)
    return [Curve(name_of(by, key), x, y, group) for key, group in groups]


def name_of(by: Sequence[str], key: tuple[Any, ...]) -> str:
    words = [
        str(value) if column in ("series", "model") else f"{column}={value}"
        for column, value in zip(by, key, strict=True)
    ]
    return ", ".join(words)


@dataclass(frozen=True)
class Overlay:
    """Anybody's points, to be drawn on top."""

    name: str
    points: pd.DataFrame


@dataclass(frozen=True)
class Picture:
    """What a figure shows beside its curves."""

    title: str
    x_label: str = ""
    y_label: str = ""
    bound: str = ""
    log_x: bool = False
    overlay: Overlay | None = None
    by: Sequence[str] = field(default_factory=tuple)


def read_overlay(path: Path, x: str, y: str) -> pd.DataFrame:
    """Anybody's points from a CSV file with columns named as x and y (and, if there are, as the groups)."""
    try:
        found = pd.read_csv(path, skipinitialspace=True)
    except OSError as error:
        raise UsageError(f"cannot read overlay '{path}': {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"overlay '{path}' is not CSV: {str(error).partition(chr(10))[0]}") from None
    if found.empty:
        raise UsageError(f"overlay '{path}' has no points, only a header")
    missing = [name for name in (x, y) if name not in found]
    if missing:
        raise UsageError(
            f"overlay '{path}' has no column '{missing[0]}'; it has: {', '.join(map(str, found))}; needed: {x} and {y}"
        )
    for name in (x, y):
        if not pd.api.types.is_numeric_dtype(found[name]):
            raise UsageError(f"overlay '{path}': column '{name}' must hold numbers, not '{found[name].iloc[0]}'")
    return found


def draw_curves(drawn: Sequence[Curve], picture: Picture, path: Path | None = None) -> Figure:
    """The figure; with a path ending in .png, .svg or .pdf, it is written there."""
    with figure_at(path) as axes:
        for number, curve in enumerate(drawn):
            _draw(axes, curve, picture, number, len(drawn))
        if picture.overlay is not None:
            _draw_overlay(axes, drawn, picture.overlay, picture.by)
        if drawn[0].y in CEILINGS:
            _draw_references(axes, drawn)
        _label(axes, drawn[0], picture)
    figure: Figure = axes.figure
    return figure


def _colour(number: int, total: int) -> Any:
    """Our colours as long as they last; for more curves a scale from dark to light, which keeps their order."""
    if total <= len(COLOURS):
        return COLOURS[number]
    from matplotlib import colormaps

    return colormaps["viridis"](0.92 * number / (total - 1))


def _draw(axes: Any, curve: Curve, picture: Picture, number: int, total: int) -> None:
    colour, marker = _colour(number, total), MARKERS[number % len(MARKERS)]
    points = curve.points
    low = (points["mean"] - points["low"]).fillna(0).clip(lower=0)
    high = (points["high"] - points["mean"]).fillna(0).clip(lower=0)
    line = "none" if curve.fits else "-"
    label = curve.name or LABELS.get(curve.y, curve.y)
    axes.plot(
        points[curve.x],
        points["mean"],
        color=colour,
        marker=marker,
        markersize=5.5,
        linestyle=line,
        linewidth=1.5,
        label=label,
    )
    axes.errorbar(
        points[curve.x], points["mean"], yerr=[low, high], fmt="none", ecolor=colour, capsize=2.5, linewidth=1
    )
    if curve.fits:
        _draw_law(axes, curve.fits[0], points[curve.x], colour)
    if picture.bound and picture.bound in curve.trials and curve.trials[picture.bound].notna().any():
        proven = curve.mean_of(picture.bound).dropna()
        axes.plot(proven.index, proven, ":", color=colour, linewidth=1.4, label=_bound_label(curve, number, total))


def _draw_law(axes: Any, law: Fit, x: pd.Series[Any], colour: Any) -> None:
    """Up to its ceiling, where it says no more."""
    grid = np.linspace(x.min(), x.max(), 300)
    values = law.predict(grid)
    if law.ceiling is not None:
        values = np.where(values < law.ceiling, values, np.nan)
    axes.plot(grid, values, color=colour, linewidth=1.2)


def _bound_label(curve: Curve, number: int, total: int) -> str | None:
    """One entry in the legend for all, where each would be too many."""
    if total > 4:
        return "proven, for each" if number == 0 else None
    return "proven" if total == 1 else f"{curve.name}: proven"


def _draw_overlay(axes: Any, drawn: Sequence[Curve], overlay: Overlay, by: Sequence[str]) -> None:
    """Hollow markers: in the colours of their curves where the overlay has the columns that tell curves apart."""
    x, y, points = drawn[0].x, drawn[0].y, overlay.points
    groups: Mapping[str, pd.DataFrame] = {"": points}
    if by and all(column in points for column in by):
        groups = {name_of(by, key): group for key, group in points.groupby(list(by))}
    names = [curve.name for curve in drawn]
    for index, (name, group) in enumerate(groups.items()):
        place = names.index(name) if name in names else None
        colour = "#000000" if place is None else _colour(place, len(drawn))
        label = overlay.name if index == 0 else None
        axes.plot(group[x], group[y], linestyle="none", marker="o", markersize=10, markerfacecolor="none",
                  markeredgecolor=colour, markeredgewidth=1.2, label=label, zorder=1)  # fmt: skip


def _draw_references(axes: Any, drawn: Sequence[Curve]) -> None:
    trials = pd.concat([curve.trials for curve in drawn])
    for name, label, style in REFERENCES:
        if name in trials and trials[name].notna().any():
            axes.axhline(trials[name].mean(), color="#666666", linestyle=style, linewidth=1.1, label=label)


def _label(axes: Any, curve: Curve, picture: Picture) -> None:
    axes.set_xlabel(picture.x_label or LABELS.get(curve.x, curve.x))
    axes.set_ylabel(picture.y_label or LABELS.get(curve.y, curve.y))
    law = "; lines: the law that describes them best" if curve.fits else ""
    axes.set_title(picture.title, fontsize=11.5, loc="left", pad=20)
    axes.text(
        0, 1.015, f"means over seeds with 95 % intervals{law}", transform=axes.transAxes, fontsize=9, color="#555555"
    )
    if curve.y in CEILINGS:
        axes.set_ylim(-0.02, 1.04)
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    if picture.log_x:
        axes.set_xscale("log")
    elif (curve.trials[curve.x] % 1 == 0).all():
        axes.xaxis.get_major_locator().set_params(integer=True)


def as_csv(drawn: Sequence[Curve]) -> str:
    """The raw data behind a figure: a row for each trial."""
    frames = [curve.trials.assign(curve=curve.name) for curve in drawn]
    text: str = pd.concat(frames, ignore_index=True).map(cell).to_csv(index=False)
    return text
