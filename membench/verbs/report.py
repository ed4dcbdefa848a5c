"""What `membench report` does: the board written as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from membench.interface.registry import Registry
from membench.records.files import write_named
from membench.verbs.leaderboard import leaderboard


@dataclass(frozen=True)
class Report:
    """The file that is there now."""

    path: Path
    rows: int
    tables: int


def report(folders: Sequence[Path], out: Path, registry: Registry, *, published: bool = True) -> Report:
    """Write the board of `membench leaderboard` with the same folders. An error where nothing can be written."""
    from membench_leaderboard.data import board_data
    from membench_leaderboard.page import page

    entries, rows = leaderboard(folders, published=published)
    data = board_data(entries, rows, registry)
    write_named(out, page(data), "choose another file with --out")
    return Report(out, len(rows), len(data["tables"]))
