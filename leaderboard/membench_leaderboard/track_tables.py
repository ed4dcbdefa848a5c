"""The standings of the tracks as tables of texts, for a terminal and for Markdown; numbers are made in track_scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from membench_leaderboard.columns import known, number
from membench_leaderboard.track_scores import LEAST, WITHIN, Cell, Score, said_of
from membench_leaderboard.tracks import SCORES, Track, size_name
from membench_leaderboard.words import whose

Row = Mapping[str, Any]

GAP = "gap"
HEADERS = ("#", "architecture")
PROFILE = ("x behind", *(f"within {most:g}x" for most in WITHIN))
# What a row says beside its scores, by its header: key, format, and the keys of the interval's ends.
SAID = {
    "facts/param": ("facts_per_parameter", ".3f", ("facts_low", "facts_high")),
    "of limit": ("facts_of_limit", ".1%", ()),
    "x proven": ("facts_times_proven", ".2f", ()),
    "CPU s": ("cpu_seconds", ",.0f", ()),
}


def overview(track: Track, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Architectures by tasks, one score each with its interval; then what follows over all tasks."""
    names = [task.name for task in track.tasks]
    more = said_headers(rows)
    headers = [*HEADERS, *names, *PROFILE, "mean rank", *more, "numbers"]
    return headers, [_overview_row(track, row, more) for row in rows]


def _overview_row(track: Track, row: Row, more: Sequence[str]) -> list[str]:
    scores = [score_text(track, row["tasks"][task.name]) for task in track.tasks]
    return [place(row), name(row), *scores, *profile_texts(row), *said_texts(row, more), row["verification"]]


def profile_texts(row: Row) -> list[str]:
    """What there is in the columns of PROFILE, and the mean rank."""
    shares = [f"{share:.0%}" for share in row["profile"].values()]
    return [f"{row['factor']:.2f}", *shares, f"{row['mean_rank']:.1f}"]


def said_headers(rows: Iterable[Row]) -> list[str]:
    """Of what at least one of the rows knows."""
    return [header for header, (key, *_) in SAID.items() if any(known(row[key]) for row in rows)]


def said_texts(row: Row, headers: Sequence[str]) -> list[str]:
    return [_said_text(row, *SAID[header]) for header in headers]


def _said_text(row: Row, key: str, form: str, ends: Sequence[str]) -> str:
    interval = [number(row[end], form) for end in ends if known(row[end])]
    return number(row[key], form) + (f" ({'-'.join(interval)})" if len(interval) == 2 else "")


def score_text(track: Track, told: Row | None) -> str:
    """A score, its interval, and how many of the sizes it is from if some are missing."""
    if told is None:
        return GAP
    score: Score = told["score"]
    interval = f" ({score.low:.3f}-{score.high:.3f})" if not math.isnan(score.low) else ""
    sizes = f" {len(score.cells) - score.gaps}/{len(score.cells)} sizes" if score.gaps else ""
    return f"{score.value:.3f}{interval}{sizes}"


def curve(track: Track, task: str, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """What architectures reached at each size on one task of a track."""
    ran = [row for row in rows if row["tasks"][task]]
    ran.sort(key=lambda row: (row["tasks"][task]["rank"], -row["tasks"][task]["score"].value))
    said = [said_of([row["tasks"][task]["score"]]) for row in ran]
    more = said_headers(said)
    headers = [*HEADERS, SCORES[track.score], *more, *map(size_name, track.sizes)]
    lines = []
    for row, one in zip(ran, said, strict=True):
        told = row["tasks"][task]
        cells = [_cell_text(cell) for cell in told["score"].cells]
        lines.append([place(told), name(row), f"{told['score'].value:.3f}", *said_texts(one, more), *cells])
    return headers, lines


def _cell_text(cell: Cell | None) -> str:
    if cell is None:
        return GAP
    more = cell.more or {}
    sign = ">=" if more.get("status") == "at least" else ""
    return f"{sign}{cell.value:.3f}"


def place(told: Row) -> str:
    return f"{told['rank']}{'=' if told['tied'] else ''}"


def name(row: Row) -> str:
    return str(row["architecture"]) if row["published"] else f"{row['architecture']} ({whose(row)})"


def overview_note(track: Track) -> str:
    """What the numbers are, and why the rows are in this order."""
    more = "" if track.score == "share" else (
        "facts/param: facts held per parameter by the model that has most; of limit: part of those that its "
        "parameters' bits could tell apart; x proven: multiple of what theory guarantees that model; "
    )  # fmt: skip
    return (
        f"{track.meaning} A {GAP} was not run, or no model has that size; there the next smaller model counts. "
        "x behind: by which factor the best score of a task is better, as the geometric mean over tasks, which ranks; "
        f"a task that was not run counts as a score of {LEAST:g}. {PROFILE[1]}: share of tasks whose score is at most "
        f"that factor behind the best. {more}CPU s: of one seed at all sizes that were run"
    )


def track_data(track: Track, rows: Sequence[Row]) -> dict[str, Any]:
    """A track as JSON can hold it, but for NaN and infinity."""
    return {
        "track": track.name,
        "title": track.title,
        "meaning": track.meaning,
        "note": overview_note(track),
        "score": SCORES[track.score],
        "sizes": list(track.sizes),
        "protocol": track.protocol,
        "protocol_config": track.protocol_config,
        "tasks": [{"name": one.name, "task": one.task, "config": one.config} for one in track.tasks],
        "rows": [{**row, "tasks": {key: _task_data(told) for key, told in row["tasks"].items()}} for row in rows],
    }


def _task_data(told: Row | None) -> dict[str, Any] | None:
    if told is None:
        return None
    score: Score = told["score"]
    return {
        "rank": told["rank"],
        "tied": told["tied"],
        "score": score.value,
        "low": score.low,
        "high": score.high,
        "at_most": score.at_most,
        "gaps": score.gaps,
        **said_of([score]),
        "sizes": [None if cell is None else _cell_data(cell) for cell in score.cells],
    }


def _cell_data(cell: Cell) -> dict[str, Any]:
    return {
        "value": cell.value,
        "low": cell.low,
        "high": cell.high,
        "parameters": cell.parameters,
        "id": cell.id,
        "config": cell.config,
        **cell.costs,
        **(cell.more or {}),
    }
