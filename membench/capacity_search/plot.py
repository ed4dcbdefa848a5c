"""The plot of a capacity: what is memorised over the load, and where that ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from membench.analysis.figure_style import COLOURS, figure_at
from membench.capacity_search.measurement import Measurement, summarise
from membench.capacity_search.threshold import Peak, Threshold
from membench.errors import UsageError
from membench.measure.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_capacity(
    done: Sequence[Measurement],
    thresholds: Sequence[Threshold],
    peak: Peak | None,
    title: str,
    path: Path | None = None,
    *,
    metric: str = "accuracy",
) -> Figure:
    """Accuracy over the load with its thresholds, and below it bits per parameter with their peak."""
    if not all(math.isfinite(one.load) for one in done):
        raise UsageError("a model without parameters has no load to draw over")
    with figure_at(path) as axes:
        upper, lower = _two_panels(axes)
        _seeds_and_mean(upper, done, "score")
        for number, one in enumerate(thresholds):
            _threshold(upper, one, metric, COLOURS[1 + number % (len(COLOURS) - 1)], "-" if number == 0 else "--")
        _seeds_and_mean(lower, done, "bits")
        if peak:
            text = f"peak: {peak.bits:.2f} bits per parameter"
            lower.plot([peak.load], [peak.bits], "*", color=COLOURS[1], markersize=12, label=text)
        loads = np.geomspace(min(one.load for one in done), max(one.load for one in done), 100)
        top = 1.15 * max(one.bits for one in done)
        lower.plot(loads, loads, "--", color="#666666", linewidth=1.1, label="all that is asked for")
        upper.set(ylabel=METRICS[metric].label, ylim=(-0.02, 1.04))
        lower.set(ylabel="bits per parameter", xlabel="load: bits asked for, per parameter", ylim=(0, top))
        upper.set_title(title, fontsize=11, loc="left", wrap=True)
        _plain_loads(lower)
    figure: Figure = axes.figure
    return figure


def _two_panels(axes: Any) -> tuple[Any, Any]:
    """The axes as the upper of two that share their load."""
    figure = axes.figure
    figure.set_size_inches(7.2, 7.4)
    places = figure.add_gridspec(2, 1)
    axes.set_subplotspec(places[0])
    axes.set_xscale("log")
    axes.tick_params(labelbottom=False, which="both")
    return axes, figure.add_subplot(places[1], sharex=axes)


def _seeds_and_mean(axes: Any, done: Sequence[Measurement], name: str) -> None:
    rows = summarise(done, ())
    seed, mean = ("each seed", "mean over seeds") if name == "score" else (None, None)  # once is enough
    axes.plot([one.load for one in done], [getattr(one, name) for one in done], "o", color=COLOURS[0], alpha=0.3,
              markersize=4, markeredgewidth=0, label=seed)  # fmt: skip
    axes.plot([row.load for row in rows], [getattr(row, name) for row in rows], "-", color=COLOURS[0], linewidth=1.6,
              label=mean)  # fmt: skip


def _threshold(axes: Any, one: Threshold, metric: str, colour: str, style: str) -> None:
    words = "all right" if one.level == 1 else f"{100 * one.level:g} % right"
    words = words if metric == "accuracy" else f"{metric} of {one.level:g}"
    if one.status != "found":
        axes.axvline(one.load, color=colour, linestyle=":", label=f"{words}: {one.status} {one.facts:.0f} facts")
        return
    label = f"{words}: {one.facts:.4g} facts ({one.low:.4g} to {one.high:.4g})"
    axes.axvspan(one.load_low, one.load_high, color=colour, alpha=0.2, linewidth=0)
    axes.axvline(one.load, color=colour, linewidth=1.4, linestyle=style, label=label)


def _plain_loads(axes: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
