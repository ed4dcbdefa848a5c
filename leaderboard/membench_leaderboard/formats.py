"""The formats of a board: what each makes of it, as text to print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from membench.printing import as_json

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from membench.interface.registry import Registry
    from membench.records.store import Entry


@dataclass(frozen=True)
class Board:
    """What was asked for, in whichever format."""

    entries: list[Entry]
    rows: pd.DataFrame
    models: bool  # every model, instead of one score for each architecture
    count: str
    registry: Callable[[], Registry]  # loading plugins takes time, and a table needs none of them
    console: Console  # where a table will be printed, and so how wide and how colourful it may be


def _table(board: Board) -> str:
    from membench_leaderboard.terminal import boards, overviews, score_boards
    from membench_leaderboard.track_scores import outside_tracks, track_rows

    out = board.console
    if board.models:
        tables = boards(board.rows, width=out.width)
    else:
        bars = out.is_terminal and out.encoding.startswith("utf")
        others = score_boards(outside_tracks(board.rows), count=board.count, width=out.width, bars=bars)
        tables = chain(overviews(track_rows(board.rows), width=out.width), others)
    with out.capture() as printed:
        for table in tables:
            out.print(table)
    return printed.get().removesuffix("\n")


def _markdown(board: Board) -> str:
    from membench_leaderboard.markdown import rows_as_markdown, scores_as_markdown

    return rows_as_markdown(board.rows) if board.models else scores_as_markdown(board.rows, board.count)


def _csv(board: Board) -> str:
    from membench_leaderboard.data import as_csv

    return as_csv(board.rows)


def _json(board: Board) -> str:
    return as_json(_data(board))


def _html(board: Board) -> str:
    from membench_leaderboard.page import page

    return page(_data(board))


def _data(board: Board) -> dict[str, Any]:
    from membench_leaderboard.data import board_data

    return board_data(board.entries, board.rows, board.registry())


def _explanation(board: Board, row: str) -> str:
    from membench_leaderboard.explain import print_explanation

    with board.console.capture() as printed:
        print_explanation(_story(board, row), board.console)
    return printed.get().removesuffix("\n")


def _json_explanation(board: Board, row: str) -> str:
    return as_json(_story(board, row))


def _story(board: Board, row: str) -> dict[str, Any]:
    from membench_leaderboard.explain import explain

    return explain(board.entries, board.rows, row, board.registry(), models=board.models)


# By the word of --format.
FORMATS: dict[str, Callable[[Board], str]] = {
    "table": _table,
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
    "html": _html,
}
# The same for one row that is to be explained.
EXPLANATIONS: dict[str, Callable[[Board, str], str]] = {"table": _explanation, "json": _json_explanation}
