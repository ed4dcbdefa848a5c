"""Marks of verification: which records of a folder were rebuilt from their weights and found to say the truth.

A mark is bound to the bytes of its record: a record that is edited afterwards has lost it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from membench import __version__
from membench.errors import UsageError
from membench.records.files import write_atomically
from membench.records.store import Entry, Unreadable, read_bytes

MARKS = "verified.json"
FORMAT = 1


def with_marks(entries: Sequence[Entry], folders: Iterable[Path]) -> list[Entry]:
    """The same entries, of which those are verified that have the bytes of a record marked below the folders."""
    marked = {row.get("sha256") for folder in folders for file in _mark_files(folder) for row in _rows(file)}
    return [replace(one, verified=one.sha256 in marked) for one in entries] if marked else list(entries)


def write_marks(folder: Path, verified: Iterable[Entry]) -> Path:
    """Say in the folder that these records, with the bytes that they were read from, are verified."""
    rows = [{"file": Path(one.source).relative_to(folder).as_posix(), "sha256": one.sha256} for one in verified]
    text = json.dumps({"format": FORMAT, "membench": __version__, "records": rows}, indent=1) + "\n"
    path = folder / MARKS
    try:
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror or error}") from None
    return path


def _mark_files(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.rglob(MARKS))) if folder.is_dir() else iter(())


def _rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of marks; none when it is not one, since a mark in doubt is no mark."""
    try:
        data = json.loads(read_bytes(file))
    except (Unreadable, ValueError, RecursionError):
        return []
    rows = data.get("records") if isinstance(data, dict) and data.get("format") == FORMAT else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
