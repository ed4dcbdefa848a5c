"""The records that come with the package: `board`, the published leaderboard, and `paper`, reproductions of papers.

Each is a folder of packs, one for each task, written by `python -m membench_leaderboard.publish`.
"""

from __future__ import annotations

from pathlib import Path

from membench.records.record import Record
from membench.records.store import Entry
from membench_leaderboard.published.compact import expand

HERE = Path(__file__).parent
BOARD, PAPER = "board", "paper"


def published_entries(source: str = BOARD, root: Path = HERE) -> list[Entry]:
    """What was published, in the order of the files."""
    files = sorted((root / source).glob("*.jsonl"))
    return [entry for file in files for entry in expand(file.read_text("utf-8"), str(file.name))]


def published_records(source: str = BOARD) -> list[Record]:
    return [entry.record for entry in published_entries(source)]
