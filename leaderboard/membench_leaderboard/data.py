"""The board as plain data: what JSON, CSV and the page are made from. Every number is made elsewhere, once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from membench import __version__
from membench.interface.registry import Registry
from membench.printing import cell
from membench.records.record import Record
from membench.records.store import Entry
from membench_leaderboard.columns import MODELS, Column, score_columns
from membench_leaderboard.frame import entries, to_frame
from membench_leaderboard.rerun import rerun_commands
from membench_leaderboard.rows import Table, summarise, tables
from membench_leaderboard.scores import standings
from membench_leaderboard.track_scores import track_rows, without_probes
from membench_leaderboard.track_tables import track_data
from membench_leaderboard.words import note, score_note

Row = Mapping[str, Any]


def board_data(
    records: Iterable[Record | Entry], rows: pd.DataFrame | None = None, registry: Registry | None = None
) -> dict[str, Any]:
    """All tables with their rows and scores, best first, as JSON can hold them; NaN is None.

    `rows` are the summarised rows of the records to show; by default, all of them.
    """
    installed, found = registry or Registry(), entries(records)
    rows = summarise(to_frame(found)) if rows is None else rows
    commands = rerun_commands(found, installed)
    boards = [_table(table, commands) for table in tables(without_probes(rows))]
    names = sorted({row["architecture"] for board in boards for row in board["rows"]})
    return {
        "membench": __version__,
        "tracks": [_with_commands(plain(track_data(track, some)), commands) for track, some in track_rows(rows)],
        "tables": boards,
        "architectures": {name: _about(name, installed) for name in names},
    }


def _with_commands(track: dict[str, Any], commands: Mapping[tuple[str, bool], str]) -> dict[str, Any]:
    """The same track, in which each size says what measures it again."""
    for row in track["rows"]:
        for told in filter(None, row["tasks"].values()):
            for model in filter(None, told["sizes"]):
                model["command"] = commands.get((model["id"], row["published"]), "")
    return track


def _table(table: Table, commands: Mapping[tuple[str, bool], str]) -> dict[str, Any]:
    rows = models(table)
    for row in rows:
        row["command"] = commands.get((row["id"], row["published"]), "")
    return {
        **table.common,
        "ranked": table.ranked,
        "sorted_by": table.by,
        "note": note(table),
        "score_note": score_note(table),
        "rows": rows,
        "scores": scores(table),
    }


def _about(name: str, registry: Registry) -> dict[str, str]:
    architecture = registry.architectures.get(name)
    if architecture is None:
        return {"summary": "", "reference": ""}
    return {"summary": architecture.summary, "reference": architecture.reference}


def models(table: Table) -> list[dict[str, Any]]:
    return _plain_fields(table.models, MODELS)


def scores(table: Table) -> list[dict[str, Any]]:
    return _plain_fields(standings(table), score_columns(table.by))


def _plain_fields(rows: Iterable[Row], columns: Sequence[Column]) -> list[dict[str, Any]]:
    keys = [column.key for column in columns if column.data]
    return [{key: plain(row[key]) for key in keys} for row in rows]


def rows_as_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The models of all tables as plain data, with ranks; NaN is null."""
    return [row for table in tables(rows) for row in models(table)]


def as_csv(rows: pd.DataFrame) -> str:
    """The models of all tables, with ranks."""
    text: str = pd.DataFrame(rows_as_json(rows)).map(cell).to_csv(index=False)
    return text.rstrip("\n")


def plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
