"""The board as Markdown, and docs/board.md: the published board as a document, made from its records alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import pandas as pd

from membench.analysis.escape_markdown import escape
from membench.records.record import Record
from membench.records.store import Entry
from membench_leaderboard.columns import MODELS, UNKNOWN, Column, Row, find, score_columns, shown
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import Table, summarise, tables
from membench_leaderboard.scores import standings
from membench_leaderboard.track_scores import outside_tracks, track_rows
from membench_leaderboard.track_tables import curve, overview, overview_note
from membench_leaderboard.tracks import Track
from membench_leaderboard.words import counted, note, score_note, title

INTRODUCTION = """\
# The board

Generated from the records in `leaderboard/membench_leaderboard/published/board` by
`python -m membench_leaderboard.publish`; do not edit. `membench leaderboard` shows the same board, and
`membench leaderboard --explain ID` shows where a row comes from and the command that reruns it.
[leaderboard.md](leaderboard.md) explains how to read it."""
NOTHING = "No records are published yet."


def rows_as_markdown(rows: pd.DataFrame) -> str:
    """A heading, the models and a note for each table."""
    return "\n\n".join(
        f"### {escape(title(table.common))}\n\n{models_table(table)}\n\n{escape(note(table))}" for table in tables(rows)
    )


def scores_as_markdown(rows: pd.DataFrame, count: str = "all", sizes: Collection[str] | None = None) -> str:
    """The tracks, then a heading, the scores of the architectures and a note for each table.

    With `sizes`, ids of rows, these are the tracks that rank their architectures, and what was reached at each size is
    shown for tasks that one of them is about.
    """
    about = set(rows["architecture"] if sizes is None else rows.loc[rows["id"].isin(sizes), "architecture"])
    tracks = [(track, some) for track, some in track_rows(rows) if any(row["architecture"] in about for row in some)]
    found = (
        f"### {escape(title(table.common))}\n\n{scores_table(table, count)}\n\n{escape(score_note(table, count))}"
        for table in tables(outside_tracks(rows))
    )
    return "\n\n".join([*(part for one in tracks for part in _track(*one, "###", sizes)), *found])


def _track(track: Track, rows: Sequence[Row], level: str, sizes: Collection[str] | None = None) -> Iterator[str]:
    """The overview of a track, and what was reached at each size, one table for each task."""
    yield f"{level} {escape(track.title)}"
    yield _texts(*overview(track, rows))
    yield escape(overview_note(track)) + "."
    for task in track.tasks:
        cells = [cell for row in rows if (told := row["tasks"][task.name]) for cell in told["score"].cells if cell]
        if sizes is None or any(cell.id in sizes for cell in cells):
            yield f"{level}# {escape(f'{task.name}: {task.task} ({task.config})')}"
            yield _texts(*curve(track, task.name, rows))


def _texts(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    from tabulate import tabulate

    cells = [[escape(text) for text in line] for line in lines]
    return tabulate(cells, headers=list(headers), tablefmt="github", disable_numparse=True)


def models_table(table: Table) -> str:
    return _table(MODELS, table.models, table.by)


def scores_table(table: Table, count: str = "all") -> str:
    return _table(score_columns(table.by), standings(table), table.by, count)


def _table(columns: Sequence[Column], rows: Sequence[Row], by: str, count: str = "all") -> str:
    from tabulate import tabulate

    chosen = shown(columns, "markdown", by, rows)
    cells = [dict(cell for column in chosen for cell in _cells(column, row, by, count)) for row in rows]
    return tabulate(cells, headers="keys", tablefmt="github", disable_numparse=True)


def _cells(column: Column, row: Row, by: str, count: str) -> Iterator[tuple[str, str]]:
    """A cell with its header; the interval of what a table is sorted by has a column of its own."""
    text = column.text(row, count)
    text = text if column.form or text == UNKNOWN else escape(text)
    if column.decides(by):
        yield column.header, text
        yield "95 % interval", column.interval_or_seeds(row) or UNKNOWN
    else:
        interval = column.interval(row, count) if column.budget else ""
        yield column.header, f"{text} ({interval})" if interval else text


def leaderboard_document(records: Iterable[Record | Entry]) -> str:
    """docs/board.md, as the records make it."""
    rows = summarise(to_frame(records))
    tracks = track_rows(rows)
    ranked = [table for table in tables(outside_tracks(rows)) if table.ranked]
    parts = [INTRODUCTION, *([] if tracks or ranked else [NOTHING])]
    parts += [part for one in tracks for part in _track(*one, "##")]
    parts += _headlines(ranked) if ranked else []
    return "\n\n".join([*parts, *(part for table in ranked for part in _section(table))]) + "\n"


def _headlines(ranked: Sequence[Table]) -> Iterator[str]:
    trials = sum(int(table.frame["seeds"].sum()) for table in ranked)
    models = sum(len(table.frame) for table in ranked)
    totals = f"{counted(trials, 'trial')} of {counted(models, 'model')} in {counted(len(ranked), 'table')}"
    yield f"{totals}. First in each:"
    yield "\n".join(f"- {escape(title(table.common))}: {_first(table)}" for table in ranked)


def _first(table: Table) -> str:
    """Who leads, with all that share the first rank."""
    area = find(score_columns(table.by), "area")
    what = "mean best accuracy" if table.by == "accuracy" else "mean least KL"
    leaders = [one for one in standings(table) if one["rank"] == 1]
    return ", ".join(f"**{escape(one['architecture'])}** ({what} {area.text(one)})" for one in leaders)


def _section(table: Table) -> Iterator[str]:
    yield f"## {escape(title(table.common))}"
    yield scores_table(table)
    yield escape(score_note(table)) + "."
    yield '<details markdown="1"><summary>All models</summary>'
    yield models_table(table)
    yield escape(note(table)) + "."
    yield "</details>"
