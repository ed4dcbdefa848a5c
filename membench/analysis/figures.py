"""Figures of any column of the trials against any other, with fitted laws and anybody's points on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from membench.analysis.claims import fitted_all
from membench.analysis.curves import Curve, Overlay, Picture, as_csv, curves, draw_curves, read_overlay
from membench.analysis.trial_frame import keep, require_columns, require_like
from membench.errors import UsageError
from membench.execute.progress import counting
from membench.records.files import make_parent, write_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plot:
    """Curves with what was fitted to them, ready to be drawn."""

    curves: Sequence[Curve]
    picture: Picture
    sentences: Sequence[str] = ()  # on the laws that were fitted

    def figure(self) -> Figure:
        """For a notebook or a window; nothing is written."""
        return draw_curves(self.curves, self.picture)

    def write(self, stem: Path, suffixes: Sequence[str]) -> list[Path]:
        """The figure in each format, and its data as CSV, all under one name."""
        make_parent(stem)
        paths = [stem.with_name(stem.name + suffix) for suffix in suffixes]
        for path in paths:
            draw_curves(self.curves, self.picture, path)
        data = stem.with_name(stem.name + ".csv")
        write_named(data, as_csv(self.curves))
        return [*paths, data]


def plot_of(
    frame: pd.DataFrame,
    x: str,
    y: str = "accuracy",
    *,
    by: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
    laws: Sequence[str] = (),
    ceiling: float | None = None,
    overlay: Path | None = None,
    bound: str = "",
    log_x: bool = False,
    title: str = "",
    show: bool = False,
) -> Plot:
    """y against x for each group of trials; with `show`, progress is shown while laws are fitted.

    UsageError for names that are no columns, for trials of one curve that differ in something that the figure does
    not show, and for an overlay without its columns.
    """
    if frame.empty:
        raise UsageError("there are no finished records to plot; make some with: membench run or membench sweep")
    frame = keep(frame, where or {})
    require_columns(frame, [x, y], numbers=True)
    require_columns(frame, [*by, *([bound] if bound else [])])
    require_like(frame, x, by)
    points = Overlay(overlay.name, read_overlay(overlay, x, y)) if overlay else None
    picture = Picture(title, bound=bound, log_x=log_x, by=by, overlay=points)
    drawn = curves(frame, x, y, by)
    if not laws:
        return Plot(drawn, picture)
    with counting(len(drawn), "curves fitted", show) as advance:
        drawn, sentences = fitted_all(drawn, laws, ceiling, advance)
    return Plot(drawn, picture, sentences)
