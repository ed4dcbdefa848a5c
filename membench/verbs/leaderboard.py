"""What `membench leaderboard` does: records are gathered, and those chosen that the board shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from membench.measure.size import ALL
from membench.verbs.arguments import say

if TYPE_CHECKING:
    import pandas as pd

    from membench.records.store import Entry


def leaderboard(
    folders: Sequence[Path],
    *,
    published: bool = True,
    task: str | None = None,
    protocol: str | None = None,
    options: Sequence[str] = (),
    budget: int | None = None,
    count: str = ALL.word,
) -> tuple[list[Entry], pd.DataFrame]:
    """The records of a board, and the rows of it that were asked for. Files that are no records are named."""
    from membench_leaderboard.gather import gather
    from membench_leaderboard.select import board_rows, select

    entries, problems = gather(folders, published=published)
    for problem in problems:
        say(problem)
    rows = board_rows(entries, folders, published=published)
    return entries, select(rows, task=task, protocol=protocol, options=options, budget=budget, count=count)
