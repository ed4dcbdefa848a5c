"""Which rows are meant: those of a board, those that were asked for, and the one that is to be explained.

Where nothing is meant, or too much, a UsageError says what there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from membench.errors import UsageError, unknown
from membench.measure.size import count_of
from membench.records.store import Entry
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import TABLE, Row, Table, summarise, tables
from membench_leaderboard.scores import standings
from membench_leaderboard.words import counted, short_title

FIRST = "make some with: membench run --model aot --task bigram, and show them with: membench leaderboard results"
LISTED = 8  # candidates that an error names


def board_rows(entries: Sequence[Entry], folders: Sequence[Path], published: bool) -> pd.DataFrame:
    """The rows of a board of these entries, which come from the folders and from what was published."""
    rows = summarise(to_frame(entries))
    rows = _among_yours(rows) if folders else rows
    if rows.empty:
        raise UsageError(_nothing(folders, published))
    return rows


def _among_yours(rows: pd.DataFrame) -> pd.DataFrame:
    """Yours, and what was published where there is something of yours to compare it with."""
    yours = {tuple(key) for key in rows.loc[~rows["published"].astype(bool), TABLE].itertuples(index=False)}
    return rows[[tuple(key) in yours for key in rows[TABLE].itertuples(index=False)]]


def _nothing(folders: Sequence[Path], published: bool) -> str:
    if folders:
        where = " and ".join(f"'{folder}'" for folder in folders)
        return f"there are no finished trials below {where}; {FIRST}"
    if not published:
        return f"--no-published leaves nothing to show; name a folder of records, or {FIRST}"
    return f"no records came with this membench; {FIRST}"


def select(
    rows: pd.DataFrame,
    *,
    task: str | None = None,
    protocol: str | None = None,
    options: Sequence[str] = (),
    budget: int | None = None,
    count: str = "all",
) -> pd.DataFrame:
    """The rows of one task or protocol, of tasks with some options (such as N=50), or that fit a budget."""
    chosen = rows
    for column, name in (("task", task), ("protocol", protocol)):
        chosen = chosen if name is None else chosen[chosen[column] == name]
    for option in options:
        chosen = chosen[[option in config.split() for config in chosen["task_config"]]]
    if chosen.empty:
        raise _no_such_table(rows, task, protocol, options)
    return (chosen if budget is None else _within(chosen, budget, count)).reset_index(drop=True)


def _no_such_table(rows: pd.DataFrame, task: str | None, protocol: str | None, options: Sequence[str]) -> UsageError:
    """The name that nothing has, or the choice that is empty together."""
    for kind, name in (("task", task), ("protocol", protocol)):
        there = sorted(set(rows[kind]))
        if name is not None and name not in there:
            return unknown(f"{kind} of this board", name, there, f"there are: {', '.join(there)}")
    keys = rows[TABLE].drop_duplicates().itertuples(index=False)
    there = sorted({short_title(dict(zip(TABLE, key, strict=True))) for key in keys})
    wanted = ", ".join([*filter(None, (task, protocol)), *options])
    return UsageError(f"no table matches {wanted}; there are: {'; '.join(there)}")


def _within(rows: pd.DataFrame, budget: int, count: str) -> pd.DataFrame:
    size = count_of(count).field
    fitting = rows[rows[size] <= budget]
    if fitting.empty:
        smallest = rows.sort_values(size).iloc[0]
        raise UsageError(
            f"--budget {budget:,}: no model is that small; the smallest is {smallest['architecture']} "
            f"({smallest['config']}) with {smallest[size]:,.0f} {count_of(count).words}"
        )
    return fitting


@dataclass(frozen=True)
class Candidate:
    """Something that can be explained: some models of one architecture in one table, and the rank they share."""

    table: Table
    rank: int | None
    models: list[Row]

    @property
    def architecture(self) -> str:
        return str(self.models[0]["architecture"])

    @property
    def published(self) -> bool:
        return bool(self.models[0]["published"])

    @property
    def words(self) -> str:
        model = self.models[0]
        who = f"{self.architecture} {model['config']} ({model['id']})" if len(self.models) == 1 else self.architecture
        return f"{who} on {short_title(self.table.common)}{', published' if self.published else ''}"


def find_row(rows: pd.DataFrame, text: str, *, models: bool = False) -> Candidate:
    """The row that `text` means: a rank, an architecture, or the start of an id.

    Ranks are those of the models, or of the architectures. Where yours and a published row are meant, it is yours.
    """
    every_model = list(_models(rows))
    candidates = every_model if models else list(_architectures(rows))
    meant = (
        [one for one in candidates if text.isdigit() and one.rank == int(text)]
        or [one for one in candidates if one.architecture == text]
        or [one for one in every_model if text and one.models[0]["id"].startswith(text)]
    )
    meant = [one for one in meant if not one.published] or meant
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(_ambiguous(text, meant))
    names = ", ".join(dict.fromkeys(one.architecture for one in candidates))
    raise UsageError(
        f"--explain {text}: no row has that rank, architecture or start of an id; the architectures are: {names}"
    )


def _models(rows: pd.DataFrame) -> Iterator[Candidate]:
    for table in tables(rows):
        for row in table.models:
            yield Candidate(table, row["rank"], [row])


def _architectures(rows: pd.DataFrame) -> Iterator[Candidate]:
    for table in tables(rows):
        for one in standings(table):
            who = one["architecture"], one["published"]
            yield Candidate(
                table, one["rank"], [row for row in table.models if (row["architecture"], row["published"]) == who]
            )


def _ambiguous(text: str, meant: Sequence[Candidate]) -> str:
    shown = "; ".join(one.words for one in meant[:LISTED]) + ("; .." if len(meant) > LISTED else "")
    return (
        f"--explain {text} could mean {counted(len(meant), 'row')}: {shown}; "
        "say which with --task, -T and --protocol, by its architecture, or by its id"
    )
