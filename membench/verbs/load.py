"""`membench.load`: records as results, from folders and single files."""

from __future__ import annotations

import os
from pathlib import Path

from membench.results import Results
from membench.verbs.arguments import say


def load(*folders: str | os.PathLike[str]) -> Results:
    """The records below some folders (`results` by default), or in single files.

    A file that is no record is named and skipped. UsageError for a path that is not there, and for two records of one
    trial with different numbers.
    """
    from membench_leaderboard.gather import read_entries

    paths = [Path(folder) for folder in folders] or [Path("results")]
    entries, problems = read_entries(paths)
    for problem in problems:
        say(problem)
    return Results([entry.record for entry in entries], folder=paths[0] if len(paths) == 1 else None)
