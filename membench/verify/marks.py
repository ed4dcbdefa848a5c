"""Marks of verification: which records of a folder were rebuilt from their weights and found to say the truth.

A mark is bound to the bytes of its record: a record that is edited afterwards has lost it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from membench import __version__
from membench.errors import UsageError
from membench.records.files import write_atomically
from membench.records.record import Record
from membench.records.store import Store

MARKS = "verified.json"
FORMAT = 1


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def verified_ids(*folders: Path) -> set[tuple[str, int]]:
    """Id and seed of each trial below the folders whose record is marked as verified and is still the same.

    A trial that another record below these folders tells differently is left out, since nobody could
    see which of the two the mark is for.
    """
    marked = {key for folder in folders for path in _mark_files(folder) for key in _still_true(path)}
    if not marked:
        return set()
    told: dict[tuple[str, int], set[str]] = {}
    for content in (_content(file) for folder in folders for file in _record_files(folder)):
        record = _record(content)
        if record is not None and record.complete:
            told.setdefault((record.id, record.seed), set()).add(sha256(content))
    return {(name, seed) for name, seed, digest in marked if told.get((name, seed), {digest}) == {digest}}


def write_marks(folder: Path, verified: Mapping[Path, bytes]) -> Path:
    """Say in the folder that these records (paths below it, with the bytes that were verified) are verified."""
    rows = [
        {"file": path.relative_to(folder).as_posix(), "sha256": sha256(content)} for path, content in verified.items()
    ]
    text = json.dumps({"format": FORMAT, "membench": __version__, "records": rows}, indent=1) + "\n"
    path = folder / MARKS
    try:
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror or error}") from None
    return path


def _mark_files(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.rglob(MARKS))) if folder.is_dir() else iter(())


def _record_files(folder: Path) -> Iterable[Path]:
    return Store(folder).files() if folder.is_dir() else [folder]


def _still_true(path: Path) -> Iterator[tuple[str, int, str]]:
    """Id, seed and digest of the marked records that are there with the same bytes."""
    for row in _rows(path):
        file = path.parent / str(row.get("file"))
        if not file.resolve().is_relative_to(path.parent.resolve()):
            continue
        content = _content(file)
        record = _record(content) if sha256(content) == row.get("sha256") else None
        if record is not None:
            yield record.id, record.seed, sha256(content)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of marks; none when it is not one, since a mark in doubt is no mark."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    rows = data.get("records") if isinstance(data, dict) and data.get("format") == FORMAT else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _record(content: bytes) -> Record | None:
    try:
        return Record.from_json(content.decode("utf-8"))
    except (ValueError, TypeError, RecursionError):
        return None
