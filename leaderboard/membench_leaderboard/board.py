"""The board as plain data: what the page, the documents and machines read. Every number is made elsewhere, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from membench import __version__
from membench.interface.registry import Registry
from membench.records.record import Record
from membench.records.store import Entry
from membench_leaderboard.frame import entries, to_frame
from membench_leaderboard.rerun import rerun_command
from membench_leaderboard.rows import sorted_by, summarise
from membench_leaderboard.scores import standings
from membench_leaderboard.table import is_ranked, note, ranked_tables, score_note, told


def board_data(
    records: Iterable[Record | Entry], rows: pd.DataFrame | None = None, registry: Registry | None = None
) -> dict[str, Any]:
    """All tables with their rows and scores, best first, as JSON can hold them; NaN is None.

    `rows` may be some of the summarised rows of the records; all of them unless said.
    """
    known, found = registry or Registry(), entries(records)
    rows = summarise(to_frame(found)) if rows is None else rows
    commands = rerun_commands(found, known)
    tables = [_table(common, group, commands) for common, group in ranked_tables(rows)]
    names = sorted({str(row["architecture"]) for table in tables for row in table["rows"]})
    about = {name: known.architectures.get(name) for name in names}
    return {
        "membench": __version__,
        "tables": tables,
        "architectures": {
            name: {"summary": one.summary if one else "", "reference": one.reference if one else ""}
            for name, one in about.items()
        },
    }


def rerun_commands(found: Iterable[Entry], registry: Registry) -> dict[tuple[str, bool], str]:
    """For each point, published or not, the command that makes its records again."""
    seeds: dict[tuple[str, bool], dict[int, Record]] = {}
    for entry in found:
        if entry.record.complete:
            seeds.setdefault((entry.record.id, entry.published), {})[entry.record.seed] = entry.record
    return {key: rerun_command(next(iter(some.values())), some, registry) for key, some in seeds.items()}


def _table(common: Mapping[str, Any], group: pd.DataFrame, commands: Mapping[tuple[str, bool], str]) -> dict[str, Any]:
    protocol = str(common["protocol"])
    return {
        **common,
        "ranked": is_ranked(protocol),
        "sorted_by": sorted_by(group),
        "note": note(common, group),
        "score_note": score_note(common, group),
        "rows": [_row(row, protocol, commands) for row in group.to_dict("records")],
        "scores": [told(one, protocol) for one in standings(group)],
    }


def _row(row: Mapping[Any, Any], protocol: str, commands: Mapping[tuple[str, bool], str]) -> dict[str, Any]:
    return {**told(row, protocol), "command": commands.get((row["id"], row["published"]), "")}
