"""The board as a plot: accuracy, or divergence, against parameters."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd

from membench.analysis.figure_style import COLOURS, MARKERS, figure_at
from membench.errors import UsageError
from membench.measure.metrics import METRICS
from membench_leaderboard.columns import INTERVALS, MODELS
from membench_leaderboard.rows import tables
from membench_leaderboard.words import short_title


def draw(rows: pd.DataFrame, path: Path) -> Path:
    """Accuracy (or divergence) against parameters for one task and protocol, with what is proven and what chance is."""
    found = list(tables(rows))
    if len(found) > 1:
        names = "; ".join(short_title(table.common) for table in found)
        raise UsageError(
            f"a plot shows one task config and protocol, but there are {len(found)}: {names}; "
            "choose with --task, -T and --protocol, or name a folder that has one"
        )
    (table,) = found
    with figure_at(path) as axes:
        _curves(axes, table.frame, table.by)
        axes.set(xscale="log", xlabel="parameters", ylabel=METRICS[table.by].label)
        if table.by == "kl":
            axes.set(yscale="log")
        else:
            _reference_lines(axes, table.frame)
            axes.set(ylim=(-0.02, 1.04))
        _plain_ticks(axes)
        common = table.common
        axes.set_title(
            f"{common['task']} ({common['task_config']}), protocol {common['protocol']}", fontsize=11, loc="left"
        )
    return path


def _curves(axes: Any, group: pd.DataFrame, by: str) -> None:
    """A curve for each architecture; what was published has hollow markers where there is something else beside it."""
    mixed = group["published"].nunique() > 1
    looks = {name: _look(number) for number, name in enumerate(sorted(group["architecture"].unique()))}
    curves = list(group.groupby(["architecture", "published"], sort=True))
    for (name, published), rows in curves:
        label = f"{name} (published)" if mixed and published else str(name)
        _curve(axes, label, rows.sort_values("parameters"), by, *looks[name], hollow=mixed and bool(published))
    for (name, published), rows in curves:
        proven = rows.sort_values("parameters").dropna(subset=["lower_bound"])
        if by == "accuracy" and len(proven) and not (mixed and published):
            colour, marker = looks[name]
            axes.plot(proven["parameters"], proven["lower_bound"], ":", color=colour, marker=marker, markersize=3,
                      label=f"{name}: proven")  # fmt: skip


def _look(number: int) -> tuple[str, str]:
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def _curve(axes: Any, name: str, rows: pd.DataFrame, by: str, colour: str, marker: str, hollow: bool) -> None:
    ends = INTERVALS[by]
    low = (rows[by] - rows[ends[0]]).fillna(0).clip(lower=0)
    high = (rows[ends[1]] - rows[by]).fillna(0).clip(lower=0)
    style = {"linestyle": "--", "markerfacecolor": "white"} if hollow else {}
    axes.plot(rows["parameters"], rows[by], color=colour, marker=marker, linewidth=1.6, label=name, **style)
    axes.errorbar(rows["parameters"], rows[by], yerr=[low, high], fmt="none", ecolor=colour, capsize=3)


def _reference_lines(axes: Any, group: pd.DataFrame) -> None:
    """What needs no memory, or no model could exceed."""
    lines = [column for column in MODELS if column.line and "accuracy" in column.page]
    for column, style in zip(lines, cycle(("--", "-.", ":"))):
        if group[column.key].notna().any():
            axes.axhline(group[column.key].mean(), color="#666666", linestyle=style, linewidth=1.1, label=column.line)


def _plain_ticks(axes: Any) -> None:
    """Numbers that people read, at 1, 2 and 5: the usual powers of ten run into each other."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
