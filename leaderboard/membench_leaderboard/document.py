"""LEADERBOARD.md: the published board as a document, made from the published records and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from membench.records.record import Record
from membench.records.store import Entry
from membench_leaderboard.frame import to_frame
from membench_leaderboard.markdown import heading, models_table, safe, scores_table
from membench_leaderboard.rows import sorted_by, summarise
from membench_leaderboard.scores import standings
from membench_leaderboard.table import DIGITS, is_ranked, note, number, ranked_tables, score_note

INTRODUCTION = """\
# Leaderboard

Made from the records in `leaderboard/membench_leaderboard/published/board` by
`python -m membench_leaderboard.publish`; do not edit it by hand. `membench leaderboard` shows the same
board, `membench leaderboard --explain ID` how a row came about and the command that makes it again.
[docs/leaderboard.md](docs/leaderboard.md) says how to read it."""
NOTHING = "No records are published yet."


def leaderboard_document(records: Iterable[Record | Entry]) -> str:
    rows = summarise(to_frame(records))
    tables = [(common, group) for common, group in ranked_tables(rows) if is_ranked(common["protocol"])]
    parts = [INTRODUCTION, *(_headlines(tables) if tables else [NOTHING])]
    return "\n\n".join([*parts, *(part for common, group in tables for part in _section(common, group))]) + "\n"


def _headlines(tables: list[tuple[dict[str, Any], pd.DataFrame]]) -> Iterator[str]:
    models = sum(len(group) for _, group in tables)
    trials = sum(int(group["seeds"].sum()) for _, group in tables)
    many = "tables" if len(tables) > 1 else "table"
    yield f"{trials:,} trials of {models:,} models in {len(tables)} {many}. First in each:"
    yield "\n".join(f"- {heading(common)}: {_first(group)}" for common, group in tables)


def _first(group: pd.DataFrame) -> str:
    """Who leads, with all that share the first rank."""
    leaders = [one for one in standings(group) if one["rank"] == 1]
    by = sorted_by(group)
    what = "mean best accuracy" if by == "accuracy" else "mean least KL"
    return ", ".join(f"**{safe(one['architecture'])}** ({what} {number(one['area'], DIGITS[by])})" for one in leaders)


def _section(common: dict[str, Any], group: pd.DataFrame) -> Iterator[str]:
    yield f"## {heading(common)}"
    yield scores_table(common, group)
    yield safe(score_note(common, group)) + "."
    yield "<details><summary>All models</summary>"
    yield models_table(common, group)
    yield safe(note(common, group)) + "."
    yield "</details>"
